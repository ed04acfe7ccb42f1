"""Clipped importance weights that never cut a gradient.

    ρ = π/π_old        L = −sg(clip(ρ, 1 − clip_low, 1 + clip_high))·A·logπ

Every token keeps a gradient, weighted by a clipped constant. Bounds are distances from 1: an
upper bound of the weight below 1 (TRL reads its own setting as absolute, and its default of 0.2
scales every token down) would be clip_high below 0, and is refused.

Source: MiniMax, arXiv 2506.13585, section 3.1; the default bounds 0 and 5 are those of ScaleRL,
Khatri et al., arXiv 2510.13786.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .terms import Terms

if TYPE_CHECKING:
    from harness.kernels.policy_rows.reference import Objective


@dataclass(frozen=True, kw_only=True)
class CISPO(Terms):
    """Log-probability weighted by credit and a clipped, constant ratio."""

    version: ClassVar[str] = "1"
    clip_low: float = 1.0
    clip_high: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.clip_high < float("inf"):
            raise ValueError(
                f"clip_high is {self.clip_high}, so no weight exceeds {1 + self.clip_high}; the "
                "upper bound of cispo's weight is at least 1, and finite"
            )
        if not 0 <= self.clip_low <= 1:
            raise ValueError(f"clip_low is {self.clip_low}; it lies between 0 and 1")

    def kernel(self) -> Objective:
        return self.row_objective("cispo", clip_low=self.clip_low, clip_high=self.clip_high)
