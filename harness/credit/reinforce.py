"""Returns, with a discount per token or per turn, about a baseline.

    G_t = r_t + g_t·G_{t+1}        over the action tokens of an episode; others pass G on unchanged
    g_t = γ                        discount `token`
    g_t = γ at a turn's last token, 1 inside a turn          discount `turn`
    A_t = G_t − b

    b = 0                                        baseline `none`
    b = mean over the batch's episodes of the return at their first action       `batch`
    b = the same over the attempts at the problem                                `group`

With rewards `turn` a token is credited with what comes at or after it; with `episode` and γ = 1
every token of an episode carries R_b.

Source: Williams, Machine Learning 8 (1992). Degenerate: unscorable episodes are outside of every
baseline and get 0; a batch or group with one scored return has b equal to it, and its credit sums
up to later rewards only.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .group import refuse_singletons
from .packing import episode_of, lesson, problem_of, rewards_of
from .returns import check_returns, discounts, reverse_scan, token_rewards
from .statistics import Array, centre

BASELINES = ("none", "batch", "group")
DISCOUNTS = ("token", "turn")


def first_action(Z: Trajectories) -> Array:
    """Per episode, the position of its first action token in T; -1 where it has none."""
    size = len(Z.token_ids_T)
    position_T = np.where(Z.is_action_T, np.arange(size), size)
    first_B = np.full(len(Z.episode_offsets) - 1, size, np.int64)
    np.minimum.at(first_B, episode_of(Z), position_T)
    return np.where(first_B < size, first_B, -1)


def baseline_of(Z: Trajectories, F: Scores, returns_T: Array, baseline: str) -> Array:
    """b_B, 0 for `none`: see the top of this file."""
    first_B = first_action(Z)
    if baseline == "none" or not len(returns_T):
        return np.zeros(len(first_B))
    unscored_B = np.isnan(rewards_of(Z, F)) | (first_B < 0)
    start_B = np.where(unscored_B, np.nan, returns_T[first_B])
    labels_B = problem_of(Z) if baseline == "group" else np.zeros(len(first_B), np.int64)
    return centre(start_B, labels_B).mean


@dataclass(frozen=True)
class Reinforce:
    """Discounted returns about a baseline."""

    version: ClassVar[str] = "1"
    gamma: float = 1.0
    discount: str = "turn"
    """token | turn: what gamma counts."""
    baseline: str = "batch"
    """none | batch | group"""
    rewards: str = "turn"
    """turn | episode: where rewards lie."""

    def __post_init__(self) -> None:
        check_returns(self.rewards, self.gamma)
        if self.discount not in DISCOUNTS:
            raise ValueError(f"discount is {self.discount!r}; it is one of {', '.join(DISCOUNTS)}")
        if self.baseline not in BASELINES:
            raise ValueError(f"baseline is {self.baseline!r}; it is one of {', '.join(BASELINES)}")

    def check(self, attempts: int) -> None:
        if self.baseline == "group":
            refuse_singletons("reinforce with a group baseline", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        r_T = token_rewards(Z, F, self.rewards)
        G_T = reverse_scan(discounts(Z, self.gamma, self.discount), r_T)
        return lesson(Z, F, G_T - baseline_of(Z, F, G_T, self.baseline)[episode_of(Z)])
