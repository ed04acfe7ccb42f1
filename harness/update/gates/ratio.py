"""No token's probability explodes against the one it was sampled with.

    pass  iff  policy/ratio_max <= max

NaN does not pass.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .verdict import check_bound, metric, verdict


@dataclass(frozen=True)
class Ratio:
    """No token's probability explodes against the one it was sampled with."""

    version: ClassVar[str] = "1"
    scores_after: ClassVar[bool] = True
    """It reads what the updater finds with `score_after`."""
    max: float = 10.0

    def __post_init__(self) -> None:
        check_bound("max", self.max, 1.0)

    def __call__(self, report: Mapping[str, Any]) -> dict[str, Any]:
        value = metric(report, "policy/ratio_max")
        return verdict("ratio", value <= self.max, {"policy/ratio_max": value, "max": self.max})
