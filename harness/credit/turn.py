"""Credit of turns from the rewards of steps.

    G_k = r_k + γ·G_{k+1}          over the turns of an episode
    A_k = (G_k − μ)/(σ + ε)        every token of turn k carries A_k; scale `none`: no division

    μ, σ over turns k of all attempts at the problem     compare `place`
    μ, σ over all turns of all attempts at the problem   compare `group`
    μ, σ over all turns of the batch                     compare `batch`
    μ = 0, no σ                                          compare `none`

What the feedback gives beyond its turn rewards comes with the last turn. γ = 0 credits a turn
with its own step reward alone.

Source: Zeng et al., arXiv 2505.11821 (turn-level credit); σ with n − 1. Degenerate: a turn that no
other is compared with, equal returns, and unscorable episodes get 0.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .group import refuse_singletons
from .packing import lesson, spread_turns
from .returns import check_returns, turn_returns
from .statistics import Array, centre, labels_of

COMPARES = ("place", "group", "batch", "none")
SCALES = ("std", "none")


def place_of(Z: Trajectories) -> Array:
    """Each turn's place in its episode, from 0."""
    episode_N = Z.arrays["turn_episode"]
    first_B = np.searchsorted(episode_N, np.arange(len(Z.episode_offsets) - 1))
    return np.arange(len(episode_N)) - first_B[episode_N]


def relative(values: Array, labels: Array, scale: str, eps: float) -> Array:
    """Values about their group's mean, over its standard deviation for `std`; 0 where constant."""
    about = centre(values, labels)
    scaled = about.centred / (about.std + eps) if scale == "std" else about.centred
    return np.where(about.constant | ~about.scored, 0.0, scaled)


@dataclass(frozen=True)
class Turn:
    """Returns of turns, compared with those of other turns."""

    version: ClassVar[str] = "1"
    gamma: float = 1.0
    """Discount per turn."""
    compare: str = "place"
    """place | group | batch | none"""
    scale: str = "std"
    """std | none"""
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_returns("turn", self.gamma)
        if self.compare not in COMPARES:
            raise ValueError(f"compare is {self.compare!r}; it is one of {', '.join(COMPARES)}")
        if self.scale not in SCALES:
            raise ValueError(f"scale is {self.scale!r}; it is one of {', '.join(SCALES)}")
        if not self.eps > 0:
            raise ValueError(f"eps is {self.eps}; it is above 0")

    def check(self, attempts: int) -> None:
        if self.compare in ("place", "group"):
            refuse_singletons(f"turn with compare {self.compare}", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        G_N = turn_returns(Z, F, self.gamma)
        problem_N = Z.arrays["turn_episode"].astype(np.int64) // max(Z.attempts, 1)
        if self.compare == "none":
            return lesson(Z, F, spread_turns(Z, np.nan_to_num(G_N, nan=0.0)))
        if self.compare == "place":
            labels_N = labels_of(zip(problem_N.tolist(), place_of(Z).tolist(), strict=True))
        else:
            labels_N = problem_N if self.compare == "group" else np.zeros_like(problem_N)
        return lesson(Z, F, spread_turns(Z, relative(G_N, labels_N, self.scale, self.eps)))
