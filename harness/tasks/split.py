"""A task in two parts: problems to train on, and problems that are kept from training.

    P(x) = μ(x | x in the part)
    x is held out  iff  H(what the policy is shown of x) < share · 2^64

H is a hash of the first messages: problems that look the same are in the same part, whatever their
number. The parts are disjoint, and which is which depends on the problems alone, on no seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from harness.identity import canonical, digest
from harness.round import Seed
from harness.tasks.uniform import below

LISTED = 1 << 16
"""Problems up to which a task is listed; a larger one is drawn from until a problem is right."""
PATIENCE = 100_000
"""Draws, at most, until one is right."""


@dataclass(frozen=True)
class Split:
    """One part of another task.

    Raises ValueError where a part is empty: where all problems look alike there is nothing to
    split.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    task: Any
    share: float = 0.2
    """Of the problems that are held out; nearly, since each is hashed for itself."""
    part: str = "train"
    """train | held_out"""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"task.share is {self.share}; it lies between 0 and 1")
        if self.part not in ("train", "held_out"):
            raise ValueError(f"task.part is {self.part!r}; it is train or held_out")
        if self._ranks == ():
            raise ValueError(
                f"task.share is {self.share}, which leaves no problem to {self.part}: "
                f"{type(self.task).__name__} has {self.task.size} problems, and those that look "
                "alike stay together"
            )
        if self.part == "train":
            self.held_out()

    def held_out(self) -> Split:
        """The part that is kept from training."""
        return replace(self, part="held_out")

    def holds(self, problem: dict[str, Any]) -> bool:
        """Whether a problem of the task is in this part."""
        shown = canonical(problem.get("messages", problem))
        word = int(digest("split", shown).removeprefix("sha256:")[:16], 16)
        return (word < self.share * 2.0**64) == (self.part == "held_out")

    @cached_property
    def _ranks(self) -> tuple[int, ...] | None:
        """Ranks in the task of the problems of this part; None where they are too many to list."""
        if getattr(self.task, "size", LISTED + 1) > LISTED:
            return None
        return tuple(i for i in range(self.task.size) if self.holds(self.task.nth(i)))

    @property
    def size(self) -> int:
        """Problems there are. AttributeError where they are too many to list."""
        if self._ranks is None:
            raise AttributeError(f"{type(self.task).__name__} is too large to be listed")
        return len(self._ranks)

    def nth(self, i: int) -> dict[str, Any]:
        """The problem at rank i of the part."""
        assert self._ranks is not None
        return self.task.nth(self._ranks[i])

    def draw(self, seed: Seed) -> dict[str, Any]:
        if self._ranks is not None:
            return self.nth(below(seed, self.size))
        for i in range(PATIENCE):
            problem: dict[str, Any] = self.task.draw(seed.fold("try", i))
            if self.holds(problem):
                return problem
        raise ValueError(f"none of {PATIENCE} problems was one to {self.part}; change task.share")

    def support(self) -> Iterator[tuple[dict[str, Any], float]]:
        """Every problem with its probability: the task's, of what is in the part."""
        mine = [(x, p) for x, p in self.task.support() if self.holds(x)]
        total = sum(p for _, p in mine)
        return ((x, p / total) for x, p in mine)

    def probability(self, problem: dict[str, Any]) -> float:
        inside = self.task.probability(problem) > 0 and self.holds(problem)
        return 1 / self.size if inside else 0.0
