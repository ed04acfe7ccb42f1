"""The frozen reference policy of a rollout, bound to its model.

Families do not import each other: whoever runs rounds finds the model that a reference names, and
gives the rollout something that scores with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


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
