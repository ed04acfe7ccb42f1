"""What a lineage may still spend: before a round, and while it runs.

    spent + most(next round) ≤ limit                for every limited dimension

spent: the chain (exact) and the attempts that are no records (a lower bound). most: where the
settings bound a dimension, that bound,

    tokens/sampled      B · min(max_episode_tokens, max_turns · max_turn_tokens)
    environment/steps   B · max_turns
    optimizer/steps     epochs · minibatches

(the first two with the most that a gate may evaluate), else what the costliest round of the branch
has cost. A round can be costlier than all before it, so a `Guard` counts what R, and what a gate
that evaluates, is about to do, and asks once Z is known what the rest of U can cost at most: work
that would overdraw is not begun, and the round ends as an attempt with what it has spent. Ranks
that roll out together count nothing on the way: there the guard speaks between the maps. Readings,
such as seconds, are known when they are spent: the guard stops at the next token or map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness import work
from harness.config import Experiment
from harness.ledger.record import Document


class Overdrawn(Exception):
    """What was about to be done does not fit the budget."""


@dataclass
class Guard:
    """Counts what a round begins; refuses what does not fit."""

    n: int = 0
    limits: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    """Before this round."""
    size: tuple[int, int] = (0, 0)
    """N and layers·heads·head_dim of the policy."""
    begun: dict[str, float] = field(default_factory=dict)

    def begin(
        self, dimension: str, count: int, attended: int = 0, model: Any = None, *,
        readings: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """Count work of R that is about to be done, and its FLOPs if it is of tokens.

        readings: to be checked with it; None: nothing is checked. Raises Overdrawn, and counts
        nothing.
        """
        matrices, width = self.size if model is None else (model.matrices, model.width)
        flops = 2 * matrices * count + 4 * width * attended if attended else 0
        begun = total(self.begun, {dimension: count}, {"flops/rollout": flops})
        if readings is not None:
            self.check({**begun, **readings})
        self.begun = begun

    def check(self, costs: Mapping[str, Any]) -> None:
        """Raises Overdrawn where this round's costs do not fit."""
        for name, limit in self.limits.items():
            before, now = self.spent.get(name, 0.0), float(costs.get(name, 0.0))
            if before + now > limit:
                raise Overdrawn(
                    f"stopped within round {self.n}: {name} was at {before:,.0f} of {limit:,.0f}, "
                    f"and this round comes to {now:,.0f}"
                )


def bounds(experiment: Experiment) -> dict[str, float]:
    """The most that a round can cost, of the dimensions that its settings bound."""
    update, iota = experiment.maps.U, experiment.inference
    found = {"optimizer/steps": float(update.epochs * update.minibatches)}  # type: ignore[attr-defined]
    gates = getattr(update, "gates", {}).values()
    evaluations = [gate.most() for gate in gates if hasattr(gate, "most")]
    problems = getattr(experiment.maps.S, "problems", None)
    if problems is not None:
        episodes = problems * experiment.maps.R.attempts  # type: ignore[attr-defined]
        found = total(found, work.most(iota, episodes), *evaluations)
    return found


def cost_of(document: Document) -> dict[str, float]:
    """Every dimension of a record's cost."""
    cost = {**document.exact["c"], **document.sealed.get("metered", {})}
    return {name: float(value) for name, value in cost.items()}


def costliest(documents: Iterable[Document]) -> dict[str, float]:
    """By dimension, the most that one of some rounds has cost."""
    most: dict[str, float] = {}
    for document in documents:
        for name, value in cost_of(document).items():
            most[name] = max(most.get(name, 0.0), value)
    return most


def overdrawn(
    limits: Mapping[str, float], spent: Mapping[str, float], seen: Mapping[str, float],
    bound: Mapping[str, float], n: int,
) -> str:  # fmt: skip
    """Why round n must not begin, in a sentence; empty if it may."""
    for name, limit in limits.items():
        before = spent.get(name, 0.0)
        most = bound.get(name, seen.get(name, 0.0))
        if before + most > limit:
            can = "can cost" if name in bound else "has cost"
            return (
                f"stopped before round {n}: {name} is at {before:,.0f} of {limit:,.0f}, and a "
                f"round {can} up to {most:,.0f}"
            )
    return ""


def total(*parts: Mapping[str, Any]) -> dict[str, float]:
    """Sums by dimension."""
    summed: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            summed[name] = summed.get(name, 0.0) + float(value)
    return summed
