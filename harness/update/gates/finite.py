"""Everything that the update reports is a finite number.

    pass  iff  every metric m of the report: |m| < ∞

Versions: 1, the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .verdict import metric, verdict


@dataclass(frozen=True)
class Finite:
    """No metric is NaN or infinite; the numbers are loss, gradient norm, and those that are."""

    version: ClassVar[str] = "1"

    def __call__(self, report: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: metric(report, name) for name in report["metrics"]}
        broken = {name: value for name, value in values.items() if not math.isfinite(value)}
        shown = {name: values[name] for name in ("loss", "grad_norm") if name in values}
        return verdict("finite", not broken, {**shown, **broken})
