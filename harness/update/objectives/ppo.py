"""The clipped policy objective.

    ρ = π/π_old        L = max(−A·ρ, −A·clip(ρ, 1 − clip_low, 1 + clip_high))
                       for A < 0 at most −A·dual_clip

clip_high above clip_low is DAPO's clip-higher. Without dual_clip a ratio far above 1 with A < 0
has an unbounded loss. log ρ is clamped to ±20 before it is exponentiated,
and has no gradient outside.

Source: Schulman et al., arXiv 1707.06347, equation 7; separate bounds: Yu et al., arXiv 2503.14476;
dual clip: Ye et al., arXiv 1912.09729, equation 5 (verl: 3.0 by default).

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .terms import Terms

if TYPE_CHECKING:
    from harness.kernels.policy_rows.reference import Objective


def check_clip(low: float, high: float) -> None:
    """One sentence where the bounds leave no interval around a ratio of 1."""
    if not (0 <= low <= 1 and high >= 0):
        raise ValueError(
            f"clip_low is {low} and clip_high {high}; ratios stay within [1 - clip_low, "
            "1 + clip_high], so clip_low lies between 0 and 1, and clip_high is not negative"
        )


@dataclass(frozen=True, kw_only=True)
class PPO(Terms):
    """Clipped ratio, with separate bounds and an optional dual clip."""

    version: ClassVar[str] = "1"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip_low, self.clip_high)
        if self.dual_clip is not None and not self.dual_clip > 1 + self.clip_high:
            raise ValueError(
                f"dual_clip is {self.dual_clip}; it exceeds 1 + clip_high = {1 + self.clip_high}, "
                "or is null"
            )

    def kernel(self) -> Objective:
        bounds = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        return self.row_objective("ppo", dual_clip=self.dual_clip, **bounds)
