"""A control: the same verdict whatever the update did.

Accepting is the null gate; rejecting measures what proposals cost that never change the state.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .verdict import verdict


@dataclass(frozen=True)
class Always:
    """Accept or reject every proposal."""

    version: ClassVar[str] = "1"
    decision: str = "accept"
    """accept | reject"""

    def __post_init__(self) -> None:
        if self.decision not in ("accept", "reject"):
            raise ValueError(f"decision is {self.decision!r}; it is accept or reject")

    def __call__(self, report: Mapping[str, Any]) -> dict[str, Any]:
        return verdict("always", self.decision == "accept", {})
