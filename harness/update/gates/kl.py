"""The update moves the policy no further than a budget of KL from where it sampled.

    pass  iff  policy/kl <= budget

NaN does not pass.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .verdict import check_bound, metric, verdict


@dataclass(frozen=True)
class KL:
    """The update moves the policy no further than a budget of KL from where it sampled."""

    version: ClassVar[str] = "1"
    scores_after: ClassVar[bool] = True
    """It reads what the updater finds with `score_after`."""
    budget: float = 0.1

    def __post_init__(self) -> None:
        check_bound("budget", self.budget)

    def __call__(self, report: Mapping[str, Any]) -> dict[str, Any]:
        value = metric(report, "policy/kl")
        return verdict("kl", value <= self.budget, {"policy/kl": value, "budget": self.budget})
