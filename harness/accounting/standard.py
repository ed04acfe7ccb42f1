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

A held-out evaluation in U rolls out too (report `evaluation`): its tokens, steps, calls and FLOPs
are counted with those of R.

N and attention: `harness.accounting.flops`. metered: the readings named by `metered`, taken as they
are; one that is declared and missing fails the round, one that is not declared is left out.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Cost, Proposal, Seeds, State
from harness.work import work_of

from .flops import attention_width, frozen_elements, matrix_elements

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
EVALUATED = ("prompt", "sampled", "observed", "attended", "steps", "calls")
"""What U reports of the episodes that it rolled out itself, as `harness.work` counts them."""
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
        work, total = work_of(Z), len(Z.token_ids_T)
        trained, scored = int(report["tokens"]), int(report.get("tokens_scored", 0))
        forwards = 3 * trained + scored
        rollout = 2 * matrices * work.tokens + 4 * width * work.attended
        if (other := Z.meta.get("reference")) is not None:
            rollout += 2 * other["matrices"] * other["tokens"]
            rollout += 4 * other["width"] * other["attended"]
        update = 2 * (matrices * forwards - frozen_elements(model) * trained)
        update += 4 * width * work.packed * forwards // max(total, 1)
        tried = dict.fromkeys(EVALUATED, 0) | dict(report.get("evaluation", {}))
        ran = tried["prompt"] + tried["sampled"] + tried["observed"]
        rollout += 2 * matrices * ran + 4 * width * tried["attended"]
        return {
            "tokens/prompt": work.prompt + tried["prompt"],
            "tokens/sampled": work.sampled + tried["sampled"],
            "tokens/observed": work.observed + tried["observed"],
            "tokens/trained": trained,
            "tokens/scored": scored,
            "environment/steps": work.steps + tried["steps"],
            "tool/calls": work.calls + tried["calls"],
            "flops/rollout": rollout,
            "flops/update": update,
            "optimizer/steps": int(report["steps"]),
        }
