"""A seed law against what it claims, by a named battery.

Dependence that is declared is exact, and one counterexample refutes it. Independence is tested by

    collisions        no two seeds are equal
    agreement         the number of equal bits of two seeds is Binomial(128, 1/2)
    bit pairs         bit i of the one and bit j of the other are uncorrelated, for all i and j
    differences       the low byte of their difference is uniform: what `seed + i` is not

Each says what it would find; a dependence that none of them sees is not excluded.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.laws.statistics import Check, chi_square, exact, g_test, largest, shift
from harness.seeds.independent import PARTS

FAMILY = "seeds"
BITS, KEY = 128, 12
COUNTED = "task seeds share a key across rounds and count them"
BYTES = dict.fromkeys(range(256), 1 / 256)
Columns = dict[str, np.ndarray]
"""Seeds by part, as bytes [N, 16]."""


@dataclass(frozen=True)
class Drawn:
    """Seeds over rounds and over roots, of an arm and of another."""

    rounds: Columns
    rounds_of_other: Columns
    roots: Columns
    roots_of_other: Columns
    level: float

    @property
    def size(self) -> int:
        return len(self.rounds["task"])


def checks(law: Any, root: str, size: int, level: float) -> list[Check]:
    """Every claim of a law, tested."""
    arms = ("laws", "another")
    rounds = [_table(law.draw(root, arm, n) for n in range(size)) for arm in arms]
    roots = [_table(law.draw(f"{root}/{n}", arm, 0) for n in range(size)) for arm in arms]
    if COUNTED in law.claims:
        # the seed space of the task is its key: the count is declared, and tested as such
        roots = [{**columns, "task": columns["task"][:, :KEY]} for columns in roots]
    drawn = Drawn(rounds[0], rounds[1], roots[0], roots[1], level)
    again = law.draw(root, "laws", 1) == law.draw(root, "laws", 1)
    found = [exact(FAMILY, "a function of root, arm and round", again, 1, "drawn again")]
    for claim in law.claims:
        for check in CLAIMS[claim](drawn) if claim in CLAIMS else ():
            found.append(replace(check, claim=f"{claim}: {check.claim}"))
    return found


def untested(law: Any) -> list[str]:
    """Claims that this battery has no test for; what is claimed of episodes is tested with R."""
    return [claim for claim in law.claims if claim not in CLAIMS and "episode" not in claim]


def _table(seeds: Iterable[Any]) -> Columns:
    rows = [[bytes.fromhex(getattr(w, part).hex) for part in PARTS] for w in seeds]
    columns = zip(*rows, strict=True)
    return {
        part: np.frombuffer(b"".join(column), np.uint8).reshape(-1, BITS // 8)
        for part, column in zip(PARTS, columns, strict=True)
    }


# ---- the battery


def _bits(seeds: np.ndarray) -> np.ndarray:
    return np.unpackbits(seeds, axis=1).astype(np.float32)


def uniform(parts: Columns, level: float) -> Iterator[Check]:
    """Bytes are uniform, and so is every bit."""
    n = len(next(iter(parts.values())))
    for part, seeds in parts.items():
        counts = Counter(seeds.ravel().tolist())
        yield g_test(FAMILY, f"bytes of {part}", counts, BYTES, level=level)
    zs = np.concatenate([(_bits(s).mean(0) - 0.5) * 2 * math.sqrt(n) for s in parts.values()])
    finds = f"a bit off 1/2 by {shift(level / zs.size) / (2 * math.sqrt(n)):.1%}"
    yield largest(FAMILY, "every bit", zs, n, finds)


def independent(pairs: list[tuple[np.ndarray, np.ndarray]], level: float) -> Iterator[Check]:
    """No dependence between the two columns of any pair that this battery sees."""
    n = sum(len(a) for a, _ in pairs)
    equal = sum(int((a[:, :KEY] == b[:, :KEY]).all(1).sum()) for a, b in pairs)
    yield exact(FAMILY, "collisions", equal == 0, n, f"{equal} equal seeds")
    zs: list[float] = []
    crossed: list[np.ndarray] = []
    differences: Counter[int] = Counter()
    for a, b in pairs:
        width = min(a.shape[1], b.shape[1])
        x, y = _bits(a[:, :width]), _bits(b[:, :width])
        zs.append((int((x == y).sum()) - x.size / 2) / math.sqrt(x.size / 4))
        crossed.append(((2 * x - 1).T @ (2 * y - 1)).ravel() / math.sqrt(len(x)))
        differences.update((a[:, -1] - b[:, -1]).tolist())
    finds = f"agreement off 1/2 by {shift(level) / (2 * math.sqrt(BITS * n)):.2%}"
    yield chi_square(FAMILY, "agreement", zs, n, finds)
    every = np.concatenate(crossed)
    correlation = shift(level / every.size) / math.sqrt(len(pairs[0][0]))
    finds = f"a correlation of two bits of {correlation:.2f}"
    yield largest(FAMILY, "bit pairs", every, n, finds)
    yield g_test(FAMILY, "differences", differences, BYTES, level=level)


def distinct(parts: Columns) -> Check:
    """All seeds of all rounds and parts are different."""
    rows = [row.tobytes() for seeds in parts.values() for row in seeds]
    twice = len(rows) - len(set(rows))
    return exact(FAMILY, "all different", twice == 0, len(rows), f"{twice} seeds drawn again")


# ---- claims

Tests = Callable[[Drawn], Iterator[Check]]


def _parts(drawn: Drawn) -> Iterator[Check]:
    pairs = [(drawn.roots[a], drawn.roots[b]) for a, b in itertools.combinations(PARTS, 2)]
    yield from independent(pairs, drawn.level)


def _rounds(names: tuple[str, ...]) -> Tests:
    def tests(drawn: Drawn) -> Iterator[Check]:
        yield distinct({name: drawn.rounds[name] for name in names})
        # neighbours that do not overlap, so that the pairs are independent of one another
        even = [(drawn.rounds[k][:-1:2], drawn.rounds[k][1::2]) for k in names]
        yield from independent(even, drawn.level)

    return tests


def _arms(names: tuple[str, ...]) -> Tests:
    def tests(drawn: Drawn) -> Iterator[Check]:
        pairs = [(drawn.roots[k], drawn.roots_of_other[k]) for k in names]
        yield from independent(pairs, drawn.level)

    return tests


def _shared(drawn: Drawn) -> Iterator[Check]:
    for part in ("task", "roll"):
        same = bool((drawn.rounds[part] == drawn.rounds_of_other[part]).all())
        yield exact(FAMILY, part, same, drawn.size, "every round")


def _uniform(drawn: Drawn) -> Iterator[Check]:
    yield from uniform(drawn.roots, drawn.level)


def _counted(drawn: Drawn) -> Iterator[Check]:
    task = drawn.rounds["task"]
    keys = bool((task[:, :KEY] == task[0, :KEY]).all())
    yield exact(FAMILY, "one key", keys, drawn.size, "every round")
    numbers = task[:, KEY:].copy().view(">u4").ravel()
    counted = bool((numbers == np.arange(drawn.size)).all())
    yield exact(FAMILY, "counted", counted, drawn.size, "every round")


CLAIMS: dict[str, Tests] = {
    "uniform marginals": _uniform,
    "uniform marginals, of the task its key": _uniform,
    "parts independent within a round": _parts,
    "rounds independent": _rounds(PARTS),
    "roll, feed, credit and update independent across rounds": _rounds(PARTS[1:]),
    "arms independent": _arms(PARTS),
    "task and roll equal across arms": _shared,
    "feed, credit and update independent across arms": _arms(PARTS[2:]),
    COUNTED: _counted,
}
