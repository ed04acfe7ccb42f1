"""Batches that walk through a finite task in epochs, each a fresh permutation of all its problems.

    ω_task = (key, n): 24 hex digits that all rounds share, and the round in the last 8
    i_p = n·P + p,   e_p = ⌊i_p / N⌋,   x_p = task[ π_{key, e_p}(i_p mod N) ]

with π_{key, e} a permutation hashed from (key, epoch). S stays a function of ω_task alone; that the
rounds walk on is the declared dependence of the seed law `epochs`. Over the key, every x_p has the
task's law; within an epoch no problem comes twice, and a batch may reach into the next one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from harness.forms import Instance
from harness.identity import canonical
from harness.round import Seed
from harness.tasks.without_replacement import check_finite

ROUNDS = 1 << 20
"""Rounds that a walk can have: a position beyond is not of the law `epochs`."""


@dataclass(frozen=True)
class Epoch:
    """The walk of one key.

    Raises ValueError for a seed whose last 8 digits are no round: it was not drawn by `epochs`.
    Degenerate: with P = N every round is one epoch.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    task: Any
    problems: int = 8

    def __post_init__(self) -> None:
        check_finite("epoch", self.task, self.problems)

    def __call__(self, seed: Seed) -> Instance:
        key, position = seed.hex[:24], int(seed.hex[24:], 16)
        if position >= ROUNDS:
            raise ValueError("sampler=epoch needs seeds that count the rounds; use seeds=epochs")
        size, first = self.task.size, position * self.problems
        ranks = [
            int(permutation(key, epoch, size)[offset])
            for epoch, offset in (divmod(first + p, size) for p in range(self.problems))
        ]
        return Instance({"problems": [self.task.nth(i) for i in ranks]})


@lru_cache(maxsize=4)
def permutation(key: str, epoch: int, size: int) -> np.ndarray:
    """The order of an epoch: argsort of 64-bit words hashed from (key, epoch), ties by index."""
    hasher = hashlib.shake_256(b"harness/epoch/v1\0" + canonical([key, epoch]))
    words = np.frombuffer(hasher.digest(8 * size), "<u8")
    order = np.argsort(words, kind="stable")
    order.setflags(write=False)
    return order
