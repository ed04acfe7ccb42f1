"""The environment's own rewards, summed.

    R_b = Σ_{k in b} r_k        r_k: the reward that the environment gave for turn k

Source: the verifiable reward of Lambert et al., arXiv 2411.15124, section 6; here the verifier is
the environment. An episode without turns has reward 0.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Scores, Trajectories
from harness.round import Seed


@dataclass(frozen=True)
class Verified:
    """Rewards of the environment, an episode's turns summed."""

    version: ClassVar[str] = "1"

    def __call__(self, X: Instance, Z: Trajectories, seed: Seed) -> Scores:
        turn_rewards_N = Z.arrays["turn_rewards"].astype(np.float64)
        episodes = len(Z.episode_offsets) - 1
        rewards_B = np.bincount(Z.arrays["turn_episode"], turn_rewards_N, minlength=episodes)
        if not np.isfinite(rewards_B).all():
            b = int(np.flatnonzero(~np.isfinite(rewards_B))[0])
            raise ValueError(
                f"the environment rewarded episode {b} with {rewards_B[b]}; a reward is finite"
            )
        return Scores(
            {"components": ["verified"]},
            {"rewards": rewards_B.astype(np.float64), "turn_rewards": turn_rewards_N},
        )
