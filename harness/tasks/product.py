"""A batch of P problems drawn independently from the task's law.

X = (x_1, …, x_P),   x_p = draw(ω.fold("problem", p)),   so X ~ μ^P
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.forms import Instance
from harness.round import Seed


@dataclass(frozen=True)
class Product:
    """The product law on batches.

    Degenerate: two problems of a batch may be equal; where they may not, draw without
    replacement.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    task: Any
    problems: int = 8

    def __post_init__(self) -> None:
        if self.problems < 1:
            raise ValueError(f"sampler.problems is {self.problems}; a batch has at least 1 problem")

    def __call__(self, seed: Seed) -> Instance:
        drawn = [self.task.draw(seed.fold("problem", p)) for p in range(self.problems)]
        return Instance({"problems": drawn})

    def probability(self, problems: Sequence[dict[str, Any]]) -> float:
        """Of a batch, where the task can say it of a problem."""
        if len(problems) != self.problems:
            return 0.0
        return math.prod(self.task.probability(problem) for problem in problems)
