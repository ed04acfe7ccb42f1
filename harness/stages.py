"""Applying the maps of a round: measured, shown, and noted in the attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness import ranks
from harness.budget import Guard
from harness.console import View
from harness.ending import heed
from harness.finder import Finder
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
    find: Finder | None = None
    """Finds results in the memo."""
    guard: Guard = field(default_factory=Guard)
    most: Callable[[Any, Any], Mapping[str, Any]] = lambda Z, G: {}
    """What a round with this Z and this Γ can cost at most, before U has run."""
    peak: Callable[[], int] = ranks.peak
    """The most memory so far, of all ranks."""
    alone: bool = True
    """Whether this process rolls out all episodes."""
    seconds: dict[str, float] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    noted: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)
    name: str = "S"

    def count(self, dimension: str, count: int, attended: int = 0, model: Any = None) -> None:
        """R is about to do this. Raises Overdrawn."""
        checked = self.alone and bool(self.guard.limits)
        readings = self.elapsed() if checked else None
        self.guard.begin(dimension, count, attended, model, readings=readings)
        if dimension == "tokens/sampled":
            self.view.sampled(count)

    def __call__(self, name: str, thunk: Callable[[], T]) -> T:
        heed()
        self.view.phase(name)
        self.name, self.began = name, time.monotonic()
        try:
            if name == "U" and self.guard.limits:
                most = self.most(self.results["R"], self.results["C"])
                self.guard.check({**most, **self.elapsed()})
            value = self._applied(name, thunk)
        except Exception:
            # what failed has cost its time, and what it had begun
            self.seconds = self.elapsed()
            self.attempt.checkpoint(name, self.spent())
            raise
        self.seconds = self.elapsed()
        self.results[name] = value
        now = time.monotonic()
        if name == "R" or now - self.noted > CHECKPOINT_SECONDS:
            self.attempt.checkpoint(name, self.spent())
            self.noted = now
        return value

    def elapsed(self) -> dict[str, float]:
        """Seconds by map so far, that under way included, and their sum."""
        seconds = {**self.seconds, f"seconds/{self.name}": time.monotonic() - self.began}
        seconds.pop("seconds/total", None)
        return {**seconds, "seconds/total": sum(seconds.values())}

    def _applied(self, name: str, thunk: Callable[[], T]) -> T:
        if name not in self.given:
            value: T = thunk() if self.find is None else self.find(name, thunk)
            return value
        if self.find is not None:
            self.find.take(name, self.given[name])
        return self.given[name]

    def _avoided(self, name: str) -> bool:
        return name in self.given or (self.find is not None and name in self.find.avoided)

    def spent(self) -> dict[str, float]:
        """A lower bound, for an attempt."""
        Z: Any = self.results.get("R")
        begun = dict(self.guard.begun)
        if Z is not None and not self._avoided("R"):
            # of all ranks; what gates have rolled out since is counted beside
            begun["tokens/sampled"] = max(
                begun.get("tokens/sampled", 0.0), float(Z.is_action_T.sum())
            )
        return {**begun, **self.seconds}

    def readings(self) -> Mapping[str, float]:
        return {**self.seconds, "memory/peak_bytes": float(self.peak())}
