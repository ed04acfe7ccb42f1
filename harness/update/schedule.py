"""Learning rates by the step counter that lives in s.

    lr(k) = lr · min(1, (k+1)/warmup) · shape((k+1-warmup)/(horizon-warmup))

shape is 1 (constant), 1 − (1−final)·x (linear) or final + (1−final)·(1 + cos πx)/2 (cosine), x
clipped to [0, 1]. The horizon is a setting, in optimizer steps: never the number of rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SHAPES = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class Schedule:
    """A learning-rate schedule."""

    shape: str = "constant"
    """constant | linear | cosine"""
    warmup: int = 0
    """Steps of linear warm-up."""
    horizon: int | None = None
    """Step at which the shape ends; needed unless constant."""
    final: float = 0.0
    """What is left of the rate there."""

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"schedule.shape is {self.shape!r}; it is one of {', '.join(SHAPES)}")
        if self.warmup < 0 or not 0 <= self.final <= 1:
            raise ValueError(
                f"schedule.warmup is {self.warmup} and final {self.final}; the first is not "
                "negative, the second between 0 and 1"
            )
        if self.shape != "constant" and (self.horizon is None or self.horizon <= self.warmup):
            raise ValueError(
                f"schedule.horizon is {self.horizon} with shape {self.shape}; it is a number of "
                f"steps above warmup {self.warmup}"
            )

    def at(self, step: int, lr: float) -> float:
        """The rate of the step with this index (0 is the first)."""
        rate = lr * min(1.0, (step + 1) / self.warmup) if self.warmup else lr
        if self.shape == "constant" or self.horizon is None:
            return rate
        x = min(max((step + 1 - self.warmup) / (self.horizon - self.warmup), 0.0), 1.0)
        if self.shape == "linear":
            return rate * (1 - (1 - self.final) * x)
        return rate * (self.final + (1 - self.final) * (1 + math.cos(math.pi * x)) / 2)
