"""The critic's loss on the rows of a batch, differentiable; `terms` defines it.

    V_t = ½·max((v − R)², (v_old + clip(v − v_old, ±clip) − R)²)        loss = Σ_t w_t·V_t

A row of no weight has no loss, whatever its other entries say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.forms import Lesson

ROWS = ("values_T", "returns_T", "value_weights_T")
"""What it reads of a batch's rows, besides the values."""


@dataclass(frozen=True)
class ValueLoss:
    """Clipped squared error."""

    clip: float | None
    detach: bool
    """Whether the body learns nothing from it."""

    def __call__(self, head: Any, hidden_RH: Tensor, rows: Mapping[str, Tensor]) -> Tensor:
        """The loss of the values that `head` gives hidden states."""
        values_R = head(hidden_RH.detach() if self.detach else hidden_RH)[:, 0].float()
        old_R, returns_R, weights_R = (rows[name] for name in ROWS)
        return value_loss(values_R, old_R, returns_R, weights_R, self.clip)


def value_loss(
    values_R: Tensor, old_R: Tensor, returns_R: Tensor, weights_R: Tensor, clip: float | None
) -> Tensor:
    # a row of no weight is let go first: not even its NaN reaches a gradient
    live_R = (weights_R != 0).nonzero()[:, 0]
    v_R, old_R, returns_R = values_R[live_R], old_R[live_R], returns_R[live_R]
    error_R = (v_R - returns_R).square()
    if clip is not None:
        held_R = (old_R + (v_R - old_R).clamp(-clip, clip) - returns_R).square()
        error_R = torch.maximum(error_R, held_R)
    return (weights_R[live_R] * error_R).sum() / 2


def value_rows(objective: Any, lesson: Lesson, weights_T: np.ndarray) -> dict[str, np.ndarray]:
    """What the rows of a lesson bring to it: empty where the objective has no value loss."""
    if not objective.value_coef:
        return {}
    return {
        "values_T": lesson.arrays["values"], "returns_T": lesson.arrays["returns"],
        "value_weights_T": np.float32(objective.value_coef) * weights_T,
    }  # fmt: skip


def explained(lesson: Lesson, rows_T: np.ndarray) -> float:
    """1 − Var(R − v_old)/Var(R) over some rows: 1 where the values are the returns, 0 where they
    are no better than a constant, and 0 where the returns are constant."""
    returns = lesson.arrays["returns"][rows_T].astype(np.float64)
    values = lesson.arrays["values"][rows_T]
    spread = float(np.var(returns)) if len(returns) else 0.0
    return 1.0 - float(np.var(returns - values)) / spread if spread > 0 else 0.0
