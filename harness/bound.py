"""What one map uses of another, bound: a rollout's reference model, and a gate's evaluation.

Families do not import each other: whoever runs rounds finds the model that a reference names, and
gives the rollout something that scores with it; and tells a gate that rolls out who does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from harness.world import World


def reference_model(source: Any, initial: Any, stored: Callable[[str], Any]) -> Any:
    """The model of a reference's source. Raises ValueError where there is none, or with another
    tokenizer than that of the model that is trained.

    stored: the model of an identifier, or KeyError.
    """
    if source == "initial":
        return initial
    if isinstance(source, str):
        try:
            model = stored(source)
        except KeyError:
            raise ValueError(
                f"rollout.reference.source is {source}, which is not in the store; give the "
                "identifier of a model that is, or initial"
            ) from None
    else:
        model = source.initial()
    if model.meta["tokenizer"] != initial.meta["tokenizer"]:
        raise ValueError(
            "the reference has another tokenizer than the model that is trained, so its "
            "log-probabilities are of other tokens; give a reference with the same tokenizer"
        )
    return model


def with_reference(R: Any, model: Any, inference: Any) -> Any:
    """R with its reference bound to a model."""
    from harness.accounting.flops import attention_width, matrix_elements
    from harness.policies.scorer import Scorer

    scorer = Scorer(
        model, matrix_elements(model), attention_width(model.meta["architecture"]),
        inference.threads, inference.attention,
    )  # fmt: skip
    return dataclasses.replace(R, reference=R.reference.bind(scorer))


def with_evaluations(U: Any, tokenizer: Any, world: World) -> Any:
    """U whose gates evaluate with this tokenizer's template, on these ranks: all are in U then."""
    together = dataclasses.replace(world, together=True)
    gates = {
        name: gate.bind(tokenizer, together) if hasattr(gate, "bind") else gate
        for name, gate in U.gates.items()
    }
    return dataclasses.replace(U, gates=gates)


def counting(thing: Any, progress: Callable[..., None]) -> Any:
    """R that tells of its work before it is done; or U, of what its gates roll out."""
    fields = {f.name for f in dataclasses.fields(thing)}
    if "progress" in fields:
        return dataclasses.replace(thing, progress=progress)
    if "gates" in fields:
        gates = {name: counting(gate, progress) for name, gate in thing.gates.items()}
        return dataclasses.replace(thing, gates=gates)
    if "rollout" in fields:
        return dataclasses.replace(thing, rollout=counting(thing.rollout, progress))
    return thing
