"""S against the declared law of its task, where the space can be listed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from harness.identity import canonical
from harness.laws.statistics import Check, exact, g_test

FAMILY = "S"
PAIRS = 4096
"""Pairs of problems that are told apart."""


def checks(sampler: Any, task: Any, law: Any, root: str, size: int, level: float) -> list[Check]:
    """One problem of each of `size` batches, drawn under seeds of the declared law."""
    seeds = [law.draw(f"{root}/{i}", "laws", 0).task for i in range(size)]
    again = sampler(seeds[0]).id == sampler(seeds[0]).id
    found = [exact(FAMILY, "a function of its seed", again, 1, "drawn again")]
    if not hasattr(task, "support"):
        return found
    law_x = {canonical(problem): p for problem, p in task.support()}
    seen: Counter[bytes] = Counter()
    for i, seed in enumerate(seeds):
        problems = sampler(seed).problems
        # every place of the batch in turn: one problem a batch keeps observations independent
        seen[canonical(problems[i % len(problems)])] += 1
    found.append(g_test(FAMILY, "a problem has the task's law", seen, law_x, level=level))
    if (pair := _pair(sampler)) is not None and len(law_x) ** 2 <= PAIRS:
        found.append(_pairs(pair, task, seeds, level))
    return found


def _pair(sampler: Any) -> Any:
    """The same law on batches of two, where it can say its probability."""
    fields = {f.name for f in dataclasses.fields(sampler)}
    if "problems" not in fields or not hasattr(sampler, "probability"):
        return None
    return dataclasses.replace(sampler, problems=2)


def _pairs(pair: Any, task: Any, seeds: list[Any], level: float) -> Check:
    space = [problem for problem, _ in task.support()]
    keys = [canonical(problem) for problem in space]
    law = {
        (a, b): pair.probability([x, y])
        for a, x in zip(keys, space, strict=True)
        for b, y in zip(keys, space, strict=True)
    }
    seen: Counter[tuple[bytes, ...]] = Counter(
        tuple(canonical(problem) for problem in pair(seed).problems) for seed in seeds
    )
    return g_test(FAMILY, "two problems of a batch have their joint law", seen, law, level=level)
