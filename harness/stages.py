"""Applying the maps of a round: measured, shown, and noted in the attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness import ranks
from harness.console import View
from harness.ledger.attempt import Attempt

T = TypeVar("T")
CHECKPOINT_SECONDS = 0.5
"""An attempt notes what it has spent after R, and when this long has passed since."""


@dataclass
class Stages:
    """Measures every map, shows it, and notes what an attempt has spent."""

    view: View
    attempt: Attempt
    given: Mapping[str, Any] = field(default_factory=dict)
    """Results that are already known, by map: they are taken, and cost what taking them costs."""
    seconds: dict[str, float] = field(default_factory=dict)
    noted: float = field(default_factory=time.monotonic)
    sampled: int = 0
    peak: Callable[[], int] = ranks.peak
    """The most memory so far, of all ranks."""

    def count(self, tokens: int) -> None:
        """Told how many tokens have been sampled on this rank."""
        self.sampled += tokens
        self.view.sampled(tokens)

    def __call__(self, name: str, thunk: Callable[[], T]) -> T:
        self.view.phase(name)
        began = time.monotonic()
        try:
            value = self.given[name] if name in self.given else thunk()
        except Exception:
            # what failed has cost its time, and what it had sampled
            self.seconds[f"seconds/{name}"] = time.monotonic() - began
            self.attempt.checkpoint(name, self.spent())
            raise
        now = time.monotonic()
        self.seconds[f"seconds/{name}"] = now - began
        if name == "R":
            Z: Any = value
            self.sampled = int(Z.is_action_T.sum())
        if name == "R" or now - self.noted > CHECKPOINT_SECONDS:
            self.attempt.checkpoint(name, self.spent())
            self.noted = now
        return value

    def spent(self) -> dict[str, float]:
        return {"seconds/total": sum(self.seconds.values()), "tokens/sampled": self.sampled}

    def readings(self) -> Mapping[str, float]:
        total = sum(self.seconds.values())
        return {**self.seconds, "seconds/total": total, "memory/peak_bytes": float(self.peak())}
