"""Seeds whose task part counts the rounds, so that a sampler can walk through data in epochs.

    ω_n^task = (first 24 hex digits of fold(root, "arm", arm, "epochs"), n in 8 hex digits)
    ω_n^k    = fold(root, "arm", arm, "round", n, k)       k in {roll, feed, credit, update}

The task seeds of two rounds share their key: a declared dependence across rounds. The seed space of
the task is the set of such pairs, uniform in the key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from harness.round import Seed, Seeds
from harness.seeds.independent import Independent, root_seed


@dataclass(frozen=True)
class Epochs(Independent):
    """The product law but for the task, which walks.

    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    claims: ClassVar[tuple[str, ...]] = (
        "uniform marginals, of the task its key",
        "parts independent within a round",
        "task seeds share a key across rounds and count them",
        "roll, feed, credit and update independent across rounds",
        "arms independent",
    )

    def draw(self, root: str, arm: str, n: int) -> Seeds:
        key = root_seed(root).fold("arm", arm, "epochs").hex[:24]
        return replace(super().draw(root, arm, n), task=Seed(f"{key}{n:08x}"))
