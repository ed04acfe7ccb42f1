"""Whether a lineage may afford one more round.

    spent + most(next round) ≤ limit                for every limited dimension

spent: the chain (exact) and the attempts that are no records (a lower bound). most: where the
settings bound a dimension, that bound, and then a limit is never overdrawn,

    tokens/sampled      B · min(max_episode_tokens, max_turns · max_turn_tokens)
    environment/steps   B · max_turns
    optimizer/steps     epochs · minibatches

else what the costliest round of the branch has cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.config import Experiment
from harness.ledger.record import Document


def bounds(experiment: Experiment) -> dict[str, float]:
    """The most that a round can cost, of the dimensions that its settings bound."""
    update, iota = experiment.maps.U, experiment.inference
    found = {"optimizer/steps": float(update.epochs * update.minibatches)}  # type: ignore[attr-defined]
    problems = getattr(experiment.maps.S, "problems", None)
    if problems is not None:
        episodes = problems * experiment.maps.R.attempts  # type: ignore[attr-defined]
        tokens = min(iota.max_episode_tokens, iota.max_turns * iota.max_turn_tokens)
        found |= {"tokens/sampled": float(episodes * tokens)}
        found |= {"environment/steps": float(episodes * iota.max_turns)}
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
