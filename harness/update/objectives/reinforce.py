"""The plain policy gradient.

    L = −A·logπ

On samples of the policy itself its gradient is that of ppo before the first step; it has no
ratio, so that more than one step on a batch drifts off the policy unseen. `correction` weighs it.

Source: Williams, Machine Learning 8 (1992).

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .terms import Terms

if TYPE_CHECKING:
    from harness.kernels.policy_rows.reference import Objective


@dataclass(frozen=True, kw_only=True)
class Reinforce(Terms):
    """Log-probability weighted by credit."""

    version: ClassVar[str] = "1"

    def kernel(self) -> Objective:
        return self.row_objective("reinforce")
