"""REINFORCE++: token returns, whitened over all action tokens of the batch.

    G_t = r_t + γ·G_{t+1}                  over action tokens; observations pass G on unchanged
    A_t = (G_t − b − mean)/√(var + 1e-8)   mean and var (n − 1) over all scored action tokens

    b = 0 (baseline `none`), or the mean return of the attempts at the problem (`group`, called
    REINFORCE++-baseline)

The method's token-level KL penalty is `kl_in_reward` around this map.

Source: Hu et al., arXiv 2501.03262. (SkyRL and an older verl reset G at every observation, so that
turns before the last one lose their return; it is carried here.) Degenerate: equal returns give 0;
unscorable episodes are outside of all statistics and get 0.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .group import refuse_singletons
from .packing import episode_of, lesson, whitened
from .reinforce import baseline_of
from .returns import check_returns, discounts, reverse_scan, token_rewards


@dataclass(frozen=True)
class ReinforcePP:
    """Whitened token returns."""

    version: ClassVar[str] = "1"
    gamma: float = 1.0
    """Discount per action token."""
    baseline: str = "none"
    """none | group"""
    rewards: str = "episode"
    """turn | episode: where rewards lie."""

    def __post_init__(self) -> None:
        check_returns(self.rewards, self.gamma)
        if self.baseline not in ("none", "group"):
            raise ValueError(f"baseline is {self.baseline!r}; it is one of none, group")

    def check(self, attempts: int) -> None:
        if self.baseline == "group":
            refuse_singletons("reinforce_pp with a group baseline", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        r_T = token_rewards(Z, F, self.rewards)
        G_T = reverse_scan(discounts(Z, self.gamma, "token"), r_T)
        raw_T = G_T - baseline_of(Z, F, G_T, self.baseline)[episode_of(Z)]
        return lesson(Z, F, whitened(Z, F, raw_T))
