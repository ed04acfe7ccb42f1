"""Few enough tokens are beyond the clip bounds.

    pass  iff  policy/clip_fraction <= max

NaN does not pass.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .verdict import check_bound, metric, verdict


@dataclass(frozen=True)
class ClipFraction:
    """Few enough tokens are beyond the clip bounds."""

    version: ClassVar[str] = "1"
    max: float = 0.5

    def __post_init__(self) -> None:
        check_bound("max", self.max)

    def __call__(self, report: Mapping[str, Any]) -> dict[str, Any]:
        value = metric(report, "policy/clip_fraction")
        return verdict(
            "clip_fraction", value <= self.max, {"policy/clip_fraction": value, "max": self.max}
        )
