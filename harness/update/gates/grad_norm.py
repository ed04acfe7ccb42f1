"""The largest gradient norm of the update's steps, before clipping, stays bounded.

    pass  iff  grad_norm <= max

NaN does not pass.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .verdict import check_bound, metric, verdict


@dataclass(frozen=True)
class GradNorm:
    """The largest gradient norm of the update's steps, before clipping, stays bounded."""

    version: ClassVar[str] = "1"
    max: float = 100.0

    def __post_init__(self) -> None:
        check_bound("max", self.max)

    def __call__(self, report: Mapping[str, Any]) -> dict[str, Any]:
        value = metric(report, "grad_norm")
        return verdict("grad_norm", value <= self.max, {"grad_norm": value, "max": self.max})
