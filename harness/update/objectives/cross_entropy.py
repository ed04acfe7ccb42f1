"""Imitation of selected episodes.

    loss = −Σ_t w_t·A_t·logπ_t         over action tokens with A_t > 0

w normalises over those tokens alone, so that what is not selected counts nowhere; A_t is 1 for
selected episodes, or any positive weight that the credit gives.

Source: expert iteration, Anthony et al., arXiv 1705.08439. Nothing selected: no loss, no gradient.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.forms import Lesson

from .terms import Terms
from .weights import aggregate, used

if TYPE_CHECKING:
    from harness.kernels.policy_rows.reference import Objective


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Terms):
    """Negative log-likelihood of selected actions."""

    version: ClassVar[str] = "1"
    uses: ClassVar[str] = "supervised"

    def kernel(self) -> Objective:
        return self.row_objective("ce")

    def weights(self, lesson: Lesson) -> np.ndarray:
        self.check(lesson)
        weight_T = lesson.advantages_T.astype(np.float64)
        if (weight_T < 0).any():
            raise ValueError(
                f"supervised credit weighs a token with {weight_T.min()}; weights are not negative"
            )
        kept_T = used(lesson) & (weight_T > 0)
        w_T = aggregate(lesson, kept_T, self.aggregation, self.length)
        return (w_T * weight_T).astype(np.float32)
