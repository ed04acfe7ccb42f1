"""A batch of P different problems of a finite task whose problems are equally likely.

    P(X = (x_1, …, x_P)) = 1 / (N (N-1) … (N-P+1))   for different x_p,   N = the task's size

Each problem alone has the task's law; together they are negatively dependent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.forms import Instance
from harness.round import Seed
from harness.tasks.uniform import rank_without


@dataclass(frozen=True)
class WithoutReplacement:
    """The law of an ordered sample without replacement.

    Degenerate: with P = N every batch is the whole task, in another order.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    task: Any
    problems: int = 8

    def __post_init__(self) -> None:
        check_finite("without_replacement", self.task, self.problems)
        if self.problems > self.task.size:
            raise ValueError(
                f"sampler.problems is {self.problems}; a batch without replacement has at most the "
                f"{self.task.size} problems of the task"
            )

    def __call__(self, seed: Seed) -> Instance:
        ranks = rank_without(seed, self.task.size, self.problems)
        return Instance({"problems": [self.task.nth(i) for i in ranks]})

    def probability(self, problems: Sequence[dict[str, Any]]) -> float:
        """Of a batch."""
        known = all(self.task.probability(problem) > 0 for problem in problems)
        different = all(p not in problems[:i] for i, p in enumerate(problems))
        if len(problems) != self.problems or not known or not different:
            return 0.0
        return 1 / math.perm(self.task.size, self.problems)


def check_finite(name: str, task: Any, problems: int) -> None:
    """Raises ValueError for a task whose problems cannot be counted, or an empty batch."""
    if problems < 1:
        raise ValueError(f"sampler.problems is {problems}; a batch has at least 1 problem")
    if not hasattr(task, "size") or not hasattr(task, "nth"):
        raise ValueError(
            f"sampler={name} needs a task whose problems are numbered, which "
            f"{type(task).__name__} is not; use sampler=product"
        )
