"""Maximum likelihood reinforcement learning: credit in units of the success rate.

    A_i = (R_i − μ)/μ,    μ = mean of the group;    A_i = 0 where μ <= 0

For rewards of 0 and 1 this estimates the gradient of log P(success) to the order that G attempts
allow: rare successes weigh more than under a standard deviation.

Source: Tajwar et al., arXiv 2602.02710. Degenerate: a group that never succeeds gets 0; otherwise
as `harness.credit.group`. Rewards below 0 have no such reading and are refused.

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
from .statistics import centre


@dataclass(frozen=True)
class MaxRL:
    """The reward about the mean of its group, over that mean."""

    version: ClassVar[str] = "1"

    def check(self, attempts: int) -> None:
        refuse_singletons("maxrl", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        rewards_B = rewards_of(Z, F)
        if (rewards_B < 0).any():
            raise ValueError(
                f"credit maxrl divides by a success rate, but a reward is {np.nanmin(rewards_B)}; "
                "give rewards from 0 on"
            )
        about = centre(rewards_B, problem_of(Z))
        teaches_B = ~about.constant & (about.mean > 0)
        safe_B = np.where(teaches_B, about.mean, 1.0)
        return lesson(Z, F, np.where(teaches_B, about.centred / safe_B, 0.0)[episode_of(Z)])
