"""REINFORCE with the mean of the other attempts as the baseline.

    A_i = R_i − Σ_{j≠i} R_j/(G − 1) = G/(G − 1)·(R_i − mean of the group)

The baseline of an attempt does not depend on it, so the gradient is unbiased. (TRL's trainer of
this name also puts k1 into the reward and clips a ratio of whole sequences: `kl_in_reward` and
`gspo`.)

Source: Ahmadian et al., arXiv 2402.14740, section 3.3. Degenerate cases: as
`harness.credit.group`; a lone attempt is refused (verl's loop would give it its raw reward).

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .group import Group, refuse_singletons


@dataclass(frozen=True)
class RLOO:
    """The reward about the mean of the others."""

    version: ClassVar[str] = "1"

    def check(self, attempts: int) -> None:
        refuse_singletons("rloo", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        return Group(baseline="leave_one_out", scale="none")(X, Z, F, seed)
