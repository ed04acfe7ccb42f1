"""Common random numbers across arms: all arms of a sweep meet the same tasks and the same luck.

    ω_n^k = fold(root, "shared", "round", n, k)            k in {task, roll}
    ω_n^k = fold(root, "arm", arm, "round", n, k)          k in {feed, credit, update}

Differences between arms then have a smaller variance than with independent seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.round import Seeds
from harness.seeds.independent import PARTS, root_seed

SHARED = ("task", "roll")


@dataclass(frozen=True)
class Coupled:
    """The law whose task and rollout seeds do not depend on the arm.

    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    claims: ClassVar[tuple[str, ...]] = (
        "uniform marginals",
        "parts independent within a round",
        "rounds independent",
        "task and roll equal across arms",
        "feed, credit and update independent across arms",
    )

    def draw(self, root: str, arm: str, n: int) -> Seeds:
        shared = root_seed(root).fold("shared", "round", n)
        own = root_seed(root).fold("arm", arm, "round", n)
        return Seeds(*((shared if part in SHARED else own).fold(part) for part in PARTS))
