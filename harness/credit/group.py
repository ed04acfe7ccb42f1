"""Credit relative to the other attempts at the same problem.

    μ_i = mean of the group                         baseline `mean`
    μ_i = mean of the group without i               baseline `leave_one_out`
    A_i = (R_i − μ_i)/(σ + ε)                       every action token of episode i carries A_i

    σ = std of the group's rewards, n − 1           scale `group`
    σ = std of all rewards of the batch, n − 1      scale `batch`
    σ = std of the group without i, n − 1           scale `others`: where it is 0, A_i = R_i − μ_i
    A_i = R_i − μ_i                                 scale `none`

The defaults are GRPO. `dr_grpo` and `rloo` are settings of it in files of their own;
`leave_one_out` with `others` is NeMo-RL's default.

Source: Shao et al., arXiv 2402.03300, section 4.1.2; leave-one-out: Kool et al. (2019) and Ahmadian
et al., arXiv 2402.14740; batch scale: Liu et al., arXiv 2508.08221. ε is verl's 1e-6 (TRL: 1e-4,
OpenRLHF: 1e-9): it only matters below a std of 1e-3 or so, where 1e-4 already bends the credit.

Degenerate: unscorable (NaN) episodes are outside of every statistic and get 0; a group with equal
rewards, or with fewer than two scored episodes, gets exactly 0 under every scale (verl and SkyRL
would give a lone attempt its raw reward). One attempt a problem is refused.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .packing import episode_of, lesson, rewards_of
from .statistics import Array, centre, std_of_others

BASELINES = ("mean", "leave_one_out")
SCALES = ("group", "batch", "others", "none")


def refuse_singletons(name: str, attempts: int) -> None:
    """One sentence where there is nothing to compare an attempt with."""
    if attempts < 2:
        raise ValueError(
            f"credit {name} compares the attempts at a problem, but attempts is {attempts}; "
            "give at least 2, or a credit without a group such as reinforce"
        )


def group_advantages(
    rewards_B: Array, attempts: int, baseline: str, scale: str, eps: float
) -> Array:
    """advantages_B in float64: the equations above; 0 for NaN rewards."""
    about = centre(rewards_B, np.arange(len(rewards_B)) // max(attempts, 1))
    raw_B = about.leave_one_out if baseline == "leave_one_out" else about.centred
    if scale == "none":
        scaled_B = raw_B
    elif scale == "others":
        std_B = std_of_others(rewards_B, attempts)
        scaled_B = np.where(std_B > 0, raw_B / (std_B + eps), raw_B)
    elif scale == "batch":
        scaled_B = raw_B / (centre(rewards_B, np.zeros(len(rewards_B), np.int64)).std + eps)
    else:
        scaled_B = raw_B / (about.std + eps)
    return np.where(about.constant | ~about.scored, 0.0, scaled_B)


@dataclass(frozen=True)
class Group:
    """Group-relative credit; GRPO by default."""

    version: ClassVar[str] = "1"
    baseline: str = "mean"
    """mean | leave_one_out"""
    scale: str = "group"
    """group | batch | others | none"""
    eps: float = 1e-6
    """Added to the standard deviation."""

    def __post_init__(self) -> None:
        if self.baseline not in BASELINES:
            raise ValueError(f"baseline is {self.baseline!r}; it is one of {', '.join(BASELINES)}")
        if self.scale not in SCALES:
            raise ValueError(f"scale is {self.scale!r}; it is one of {', '.join(SCALES)}")
        if not self.eps > 0:
            raise ValueError(f"eps is {self.eps}; it is above 0")

    def check(self, attempts: int) -> None:
        refuse_singletons("group", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        advantages_B = group_advantages(
            rewards_of(Z, F), Z.attempts, self.baseline, self.scale, self.eps
        )
        return lesson(Z, F, advantages_B[episode_of(Z)])
