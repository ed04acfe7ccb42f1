"""F's own randomness: all of it comes from ω_feed."""

from __future__ import annotations

from typing import Any

from harness.forms import Instance, Trajectories
from harness.laws.statistics import Check, exact
from harness.round import Seed

FAMILY = "F"
SEEDS = 8


def checks(feedback: Any, X: Instance, Z: Trajectories, root: Seed) -> list[Check]:
    """The same under the same seed, whatever was asked in between; and whether seeds matter."""
    seeds = [root.fold("feedback", i) for i in range(SEEDS)]
    first = [feedback(X, Z, seed).id for seed in seeds]
    again = [feedback(X, Z, seed).id for seed in reversed(seeds)][::-1]
    different = len(set(first))
    how = "deterministic" if different == 1 else f"random: {different} of {SEEDS} seeds differ"
    return [exact(FAMILY, "a function of its inputs and seed", first == again, SEEDS, how)]
