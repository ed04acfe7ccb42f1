"""Feedback on how an episode stopped.

    R_b = rewards[stop reason of b]        0 for reasons that are not named; null: unscorable

In a `sum`, a null for the budgets takes cut-off episodes out of training (DAPO's overlong
filtering; TRL's mask_truncated_completions), and a number below 0 is a penalty for them.

Source: Yu et al., arXiv 2503.14476, section 3.4.

Versions: 1, the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Scores, Stop, Trajectories
from harness.round import Seed


@dataclass(frozen=True)
class Stopped:
    """A reward, or none, by stop reason."""

    version: ClassVar[str] = "1"
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """By name of the reason, such as token_budget; null where it cannot be scored."""

    def __post_init__(self) -> None:
        for name, reward in self.rewards.items():
            if name.upper() not in Stop.__members__:
                known = ", ".join(stop.name.lower() for stop in Stop)
                raise ValueError(f"rewards names {name!r}, which is no stop reason; {known} are")
            if reward is not None and not math.isfinite(reward):
                raise ValueError(f"rewards.{name} is {reward}; it is a finite number or null")

    def __call__(self, X: Instance, Z: Trajectories, seed: Seed) -> Scores:
        by_stop = np.zeros(max(Stop) + 1)
        for name, reward in self.rewards.items():
            by_stop[Stop[name.upper()]] = math.nan if reward is None else reward
        return Scores({"components": ["stopped"]}, {"rewards": by_stop[Z.stop_B]})
