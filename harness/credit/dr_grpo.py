"""GRPO done right: no division by a standard deviation.

    A_i = R_i − mean of the group

The other half of the method is in the objective: aggregation `sequence_sum_norm` with a constant.

Source: Liu et al., arXiv 2503.20783, section 3. Degenerate cases: as `harness.credit.group`.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .group import Group, refuse_singletons


@dataclass(frozen=True)
class DrGRPO:
    """The reward about the mean of its group."""

    version: ClassVar[str] = "1"

    def check(self, attempts: int) -> None:
        refuse_singletons("dr_grpo", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        return Group(baseline="mean", scale="none")(X, Z, F, seed)
