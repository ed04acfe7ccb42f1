"""Tests of a law, their p-values, and what they would find.

    G = 2·Σ O ln(O/E) / q        q = 1 + (Σ 1/p − 1)/(6·N·(K − 1)), Williams' correction
    Holm: the i-th smallest of m p-values is rejected if p_(j)·(m − j + 1) <= α for all j <= i

so that over a whole family the chance of one false rejection is at most α.
Source: Williams, Improved likelihood ratio tests (Biometrika 1976); Holm (1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

SMALL = 8.0
"""Cells of a smaller expected count are pooled."""
POWER = 0.9
"""The power at which it is said what a test finds."""


@dataclass(frozen=True)
class Check:
    """A test of one claim; p is 1 or 0 where the claim is exact."""

    family: str
    claim: str
    test: str
    size: int
    p: float
    finds: str = ""
    """What it finds with POWER at the level of the family, were it the only test."""


def g_test(
    family: str, claim: str, observed: Mapping[Any, int], law: Mapping[Any, float],
    pools: Mapping[Any, Any] | None = None, *, level: float = 1e-3,
) -> Check:  # fmt: skip
    """Counts against probabilities of the same cells.

    pools: which cells of small expectation are counted together; all of them without it. A count in
    a cell without probability rejects for certain.
    """
    size = sum(observed.values())
    strange = [cell for cell in observed if observed[cell] and not law.get(cell)]
    if strange:
        return Check(family, claim, f"impossible: {strange[0]!r}"[:120], size, 0.0)
    cells = _pooled(observed, law, pools or {}, size)
    O, p = (np.array(x, np.float64) for x in zip(*cells, strict=True))
    if len(O) < 2:
        return Check(family, claim, "one cell: nothing to test", size, 1.0)
    E, freedom = size * p, len(O) - 1
    q = 1 + (float((1 / p).sum()) - 1) / (6 * size * freedom)
    positive = O > 0
    G = 2 * float((O[positive] * np.log(O[positive] / E[positive])).sum()) / q
    from scipy.stats import chi2

    finds = f"{noncentrality(freedom, level) / (2 * size):.1e} nats an observation"
    test = f"G {G:.1f} on {freedom} degrees"
    return Check(family, claim, test, size, float(chi2.sf(max(G, 0.0), freedom)), finds)


def _pooled(
    observed: Mapping[Any, int], law: Mapping[Any, float], pools: Mapping[Any, Any], size: int
) -> list[tuple[int, float]]:
    """Cells of enough expectation, then pools of the others, then the rest together."""
    cells: list[tuple[int, float]] = []
    small: dict[Any, tuple[int, float]] = {}
    for cell, p in law.items():
        if size * p >= SMALL:
            cells.append((observed.get(cell, 0), p))
        elif p > 0:
            count, mass = small.get(pools.get(cell), (0, 0.0))
            small[pools.get(cell)] = (count + observed.get(cell, 0), mass + p)
    cells += [pool for pool in small.values() if size * pool[1] >= SMALL]
    rest = [pool for pool in small.values() if size * pool[1] < SMALL]
    if rest:
        count, mass = sum(c for c, _ in rest), sum(m for _, m in rest)
        if size * mass < SMALL and cells:
            # still too few: they join the smallest cell
            i = min(range(len(cells)), key=lambda k: cells[k][1])
            cells[i] = (cells[i][0] + count, cells[i][1] + mass)
        else:
            cells.append((count, mass))
    return cells


@lru_cache(maxsize=256)
def noncentrality(freedom: int, level: float) -> float:
    """The non-centrality that a chi-square test at a level finds with POWER."""
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    bar = chi2.isf(level, freedom)
    found: float = brentq(lambda nc: ncx2.sf(bar, freedom, nc) - POWER, 1e-6, 1e3 + 10 * bar)
    return found


def z_test(family: str, claim: str, z: float, size: int, finds: str = "") -> Check:
    """A standard normal statistic, two-sided."""
    return Check(family, claim, f"z {z:+.2f}", size, math.erfc(abs(z) / math.sqrt(2)), finds)


def chi_square(family: str, claim: str, zs: Sequence[float], size: int, finds: str = "") -> Check:
    """Independent standard normal statistics, together."""
    from scipy.stats import chi2

    total = float(np.square(zs).sum())
    test = f"χ² {total:.1f} on {len(zs)} degrees"
    return Check(family, claim, test, size, float(chi2.sf(total, len(zs))), finds)


def largest(family: str, claim: str, zs: np.ndarray, size: int, finds: str = "") -> Check:
    """The largest of many standard normal statistics, by Bonferroni."""
    z = float(np.abs(zs).max())
    p = min(1.0, zs.size * math.erfc(z / math.sqrt(2)))
    return Check(family, claim, f"largest |z| {z:.2f} of {zs.size}", size, p, finds)


def exact(family: str, claim: str, holds: bool, size: int, test: str) -> Check:
    """A claim that one counterexample refutes."""
    return Check(family, claim, test, size, float(holds), "any")


def shift(level: float) -> float:
    """The mean of a standard normal statistic that a two-sided test finds with POWER."""
    from scipy.stats import norm

    return float(norm.isf(level / 2) + norm.ppf(POWER))


def holm(checks: Sequence[Check], level: float) -> list[bool]:
    """Which are rejected, at a level of the whole family."""
    order = sorted(range(len(checks)), key=lambda i: checks[i].p)
    rejected = [False] * len(checks)
    for rank, i in enumerate(order):
        if checks[i].p * (len(checks) - rank) > level:
            break
        rejected[i] = True
    return rejected
