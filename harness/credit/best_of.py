"""Expert iteration: the best attempts at a problem are imitated.

    episode i is kept iff it is among the `keep` largest rewards of its group and R_i >= threshold

Γ is for supervised learning: advantages are 1 on the actions of kept episodes, 0 elsewhere.

Source: Anthony et al., arXiv 1705.08439; rejection sampling: Touvron et al., arXiv 2307.09288,
section 3.2.3. Degenerate: among equals the first attempts are kept, and attempts are
exchangeable; unscorable episodes are never kept; a group whose attempts are all below the
threshold keeps none.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .packing import episode_of, lesson, rewards_of, statistics


@dataclass(frozen=True)
class BestOf:
    """The best attempts of each group, for imitation."""

    version: ClassVar[str] = "1"
    use: ClassVar[str] = "supervised"
    """What its lessons are for: an objective that `uses` them."""
    keep: int = 1
    """Attempts kept a problem, at most."""
    threshold: float | None = None
    """The least reward that is imitated; null: any."""

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ValueError(f"keep is {self.keep}; at least 1 attempt is kept")
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise ValueError(f"threshold is {self.threshold}; it is a finite number or null")

    def check(self, attempts: int) -> None:
        if self.threshold is None and attempts <= self.keep:
            raise ValueError(
                f"credit best_of keeps {self.keep} of {attempts} attempts, which selects nothing; "
                "give more attempts, or a threshold"
            )

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        rewards_B = rewards_of(Z, F)
        rows_PG = np.nan_to_num(rewards_B, nan=-np.inf).reshape(-1, max(Z.attempts, 1))
        rank_PG = np.argsort(np.argsort(-rows_PG, axis=1, kind="stable"), axis=1, kind="stable")
        least = -np.inf if self.threshold is None else self.threshold
        kept_B = ((rank_PG < self.keep) & (rows_PG >= least) & (rows_PG > -np.inf)).reshape(-1)
        told = {**statistics(Z, rewards_B), "kept": int(kept_B.sum())}
        meta = {"statistics": told}
        return lesson(Z, F, kept_B[episode_of(Z)], use=self.use, meta=meta)
