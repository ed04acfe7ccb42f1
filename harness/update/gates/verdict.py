"""The verdict of a gate, and how a gate reads a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.identity import evidence


def verdict(name: str, passed: bool, numbers: Mapping[str, float]) -> dict[str, Any]:
    """What a record can hold: NaN and infinities are spelt as strings."""
    return {
        "name": name,
        "passed": bool(passed),
        "numbers": {key: evidence(value) for key, value in numbers.items()},
    }


def metric(report: Mapping[str, Any], name: str) -> float:
    """A metric of the report as a float; spelt NaN and infinities are read back."""
    metrics = report["metrics"]
    if name not in metrics:
        known = ", ".join(sorted(metrics))
        raise ValueError(f"a gate reads {name!r}, but the update reports {known}")
    return float(metrics[name])


def check_bound(name: str, value: float, least: float = 0.0) -> None:
    """One sentence where a bound is no finite number above the least that makes sense."""
    if not least < value < float("inf"):
        raise ValueError(f"{name} is {value}; it is a finite number above {least:g}")
