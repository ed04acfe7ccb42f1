"""Independent seeds: every part of ω_n, of every round and of every arm, on its own path.

    ω_n^k = fold(root, "arm", arm, "round", n, k),    k in {task, roll, feed, credit, update}

The root is any integer or word, as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.round import Seed, Seeds

PARTS = ("task", "roll", "feed", "credit", "update")


def root_seed(root: str) -> Seed:
    """The seed that a root (any integer or word, as text) stands for."""
    return Seed("0" * 32).fold("root", root)


@dataclass(frozen=True)
class Independent:
    """The product law.

    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    claims: ClassVar[tuple[str, ...]] = (
        "uniform marginals",
        "parts independent within a round",
        "rounds independent",
        "arms independent",
    )

    def draw(self, root: str, arm: str, n: int) -> Seeds:
        at = root_seed(root).fold("arm", arm, "round", n)
        return Seeds(*(at.fold(part) for part in PARTS))
