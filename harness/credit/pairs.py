"""Preference pairs among the attempts at a problem.

    (i, j) is a pair iff R_i − R_j > margin            select `all`: every such pair
                                                       select `best_worst`: the best and the worst

Γ names them as [chosen, rejected] episodes; the advantages are +1 and −1 on the tokens of an
episode in proportion to how often it is chosen or rejected, for people only: the objective reads
the pairs.

Source: pairs by reward, as in Guo et al., arXiv 2402.04792 (online DPO). Degenerate: equal rewards,
lone and unscorable episodes give no pair; among equals the first attempt stands for them, and
attempts are exchangeable; no pair at all is an empty lesson.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .group import refuse_singletons
from .packing import episode_of, lesson, rewards_of, statistics
from .statistics import Array

SELECTS = ("best_worst", "all")


@dataclass(frozen=True)
class Pairs:
    """Chosen and rejected attempts, by reward."""

    version: ClassVar[str] = "1"
    use: ClassVar[str] = "pairs"
    """What its lessons are for: an objective that `uses` them."""
    select: str = "best_worst"
    """best_worst | all"""
    margin: float = 0.0
    """How much more reward the chosen one has, at least."""

    def __post_init__(self) -> None:
        if self.select not in SELECTS:
            raise ValueError(f"select is {self.select!r}; it is one of {', '.join(SELECTS)}")
        if not 0 <= self.margin < float("inf"):
            raise ValueError(f"margin is {self.margin}; it is a finite number, not negative")

    def check(self, attempts: int) -> None:
        refuse_singletons("pairs", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        rewards_B = rewards_of(Z, F)
        rows = rewards_B.reshape(-1, max(Z.attempts, 1))
        pairs = [
            [p * Z.attempts + i, p * Z.attempts + j]
            for p, row in enumerate(rows)
            for i, j in self._within(row)
        ]
        net_B = np.zeros(len(rewards_B))
        for chosen, rejected in pairs:
            net_B[chosen] += 1
            net_B[rejected] -= 1
        shown_B = net_B / max(1.0, np.abs(net_B).max(initial=0))
        told = {**statistics(Z, rewards_B), "pairs": len(pairs)}
        meta = {"pairs": pairs, "statistics": told}
        return lesson(Z, F, shown_B[episode_of(Z)], use=self.use, meta=meta)

    def _within(self, rewards_G: Array) -> list[tuple[int, int]]:
        scored = [g for g in range(len(rewards_G)) if not np.isnan(rewards_G[g])]
        candidates = [(i, j) for i in scored for j in scored]
        if self.select == "best_worst" and scored:
            # max and min take the first among equals
            candidates = [(max(scored, key=rewards_G.item), min(scored, key=rewards_G.item))]
        return [(i, j) for i, j in candidates if rewards_G[i] - rewards_G[j] > self.margin]
