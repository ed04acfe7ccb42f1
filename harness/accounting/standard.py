"""The cost of a round: counts of its work, and the readings that were declared.

computed (integers, functions of what the record holds):

    tokens/prompt       tokens before the first action, each distinct prompt of a problem once: the
                        attempts at it share its prefill
    tokens/sampled      tokens that the policy sampled
    tokens/observed     tokens that observations and turn headers appended after the prompt
    tokens/trained      tokens forwarded and backwarded in U (report `tokens`)
    tokens/scored       tokens only forwarded in U (report `tokens_scored`, 0 if absent)
    environment/steps   turns that the environment answered
    tool/calls          tool calls in them
    flops/rollout       2·N·(prompt + observed + sampled) + attention of the same tokens; and where
                        Z has a `reference`, 2·N + attention of the tokens that it was run on, with
                        its own N
    flops/update        2·N·(3·trained + scored) + attention, in the same proportion of the batch;
                        of a base, which has no gradient, 2·N·(2·trained + scored)
    optimizer/steps     steps of the optimizer, those of a rejected proposal too

N and attention: `harness.accounting.flops`. metered: the readings named by `metered`, taken as they
are; one that is declared and missing fails the round, one that is not declared is left out.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Cost, Proposal, Seeds, State

from .flops import attention_width, frozen_elements, matrix_elements, seen

COMPUTED = {
    "tokens/prompt": "tokens", "tokens/sampled": "tokens", "tokens/observed": "tokens",
    "tokens/trained": "tokens", "tokens/scored": "tokens", "environment/steps": "steps",
    "tool/calls": "calls", "flops/rollout": "FLOP", "flops/update": "FLOP",
    "optimizer/steps": "steps",
}  # fmt: skip
"""Names and units of the computed dimensions, fixed by the version."""
WORK = {
    "R": ("tokens/prompt", "tokens/sampled", "tokens/observed", "environment/steps", "tool/calls",
          "flops/rollout"),
    "U": ("tokens/trained", "tokens/scored", "flops/update", "optimizer/steps"),
}  # fmt: skip
"""The map that a computed dimension is the work of: what is avoided where its result is found."""
UNITS = {
    "seconds/": "s", "cpu_seconds/": "s", "device_seconds/": "s", "memory/": "B", "bytes/": "B",
    "joules/": "J", "money/": "currency",
}  # fmt: skip
"""Units of metered dimensions by the beginning of their names."""


def unit_of(name: str) -> str:
    """The unit of a metered dimension, by how its name begins; ValueError where none fits."""
    unit = next((unit for begin, unit in UNITS.items() if name.startswith(begin)), None)
    if unit is None:
        raise ValueError(
            f"the metered dimension {name!r} has no unit; names begin with {', '.join(UNITS)}"
        )
    return unit


@dataclass(frozen=True)
class Standard:
    """Computed counts, and declared readings."""

    version: ClassVar[str] = "1"
    work: ClassVar[Mapping[str, tuple[str, ...]]] = WORK
    metered: tuple[str, ...] = ()
    """Readings that enter the cost."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metered", tuple(self.metered))
        for name in self.metered:
            unit_of(name)

    def dimensions(self) -> list[dict[str, Any]]:
        """Name, unit and kind of every dimension, in order."""
        computed = [{"name": n, "unit": u, "computed": True} for n, u in COMPUTED.items()]
        return computed + [{"name": n, "unit": unit_of(n), "computed": False} for n in self.metered]

    def __call__(
        self, state: State, X: Instance, Z: Trajectories, F: Scores, G: Lesson,
        proposal: Proposal, seeds: Seeds, readings: Mapping[str, float],
    ) -> Cost:  # fmt: skip
        missing = [name for name in self.metered if name not in readings]
        if missing:
            raise ValueError(
                f"the cost declares {', '.join(missing)}, which nothing here meters; "
                "leave it out of accounting.metered"
            )
        metered = {name: float(readings[name]) for name in self.metered}
        return Cost(self.computed(state, Z, proposal.report), metered)

    def computed(self, state: State, Z: Trajectories, report: Mapping[str, Any]) -> dict[str, int]:
        """The computed dimensions of a round with this start, these episodes and this update."""
        model: Any = state.model
        matrices, width = matrix_elements(model), attention_width(model.meta["architecture"])
        prompts, observed, rolled, batch = lengths(Z)
        sampled, total = int(Z.is_action_T.sum()), len(Z.token_ids_T)
        trained, scored = int(report["tokens"]), int(report.get("tokens_scored", 0))
        forwards = 3 * trained + scored
        rollout = 2 * matrices * (prompts + observed + sampled) + 4 * width * rolled
        if (other := Z.meta.get("reference")) is not None:
            rollout += 2 * other["matrices"] * other["tokens"]
            rollout += 4 * other["width"] * other["attended"]
        return {
            "tokens/prompt": prompts,
            "tokens/sampled": sampled,
            "tokens/observed": observed,
            "tokens/trained": trained,
            "tokens/scored": scored,
            "environment/steps": len(Z.arrays["turn_episode"]),
            "tool/calls": sum(len(t["event"]["calls"]) for e in Z.episodes for t in e["turns"]),
            "flops/rollout": rollout,
            "flops/update": 2 * (matrices * forwards - frozen_elements(model) * trained)
            + 4 * width * batch * forwards // max(total, 1),
            "optimizer/steps": int(report["steps"]),
        }


def lengths(Z: Trajectories) -> tuple[int, int, int, int]:
    """Distinct prompt tokens, observed tokens, and how many tokens those of the rollout (shared
    prompts once) and those of the packed batch attend to."""
    prompts = observed = rolled = batch = 0
    known: set[tuple[int, bytes]] = set()
    for b, start in enumerate(Z.episode_offsets[:-1]):
        end = Z.episode_offsets[b + 1]
        action = Z.is_action_T[start:end]
        length = int(end - start)
        prompt = int(np.argmax(action)) if action.any() else length
        prefix = (b // max(Z.attempts, 1), Z.token_ids_T[start : start + prompt].tobytes())
        if prefix not in known:
            known.add(prefix)
            prompts, rolled = prompts + prompt, rolled + seen(0, prompt)
        observed += length - prompt - int(action.sum())
        rolled += seen(prompt, length)
        batch += seen(0, length)
    return prompts, observed, rolled, batch
