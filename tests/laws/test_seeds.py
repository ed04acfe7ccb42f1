import dataclasses
from dataclasses import dataclass

import pytest

from harness.laws.seeds import checks, untested
from harness.laws.statistics import holm
from harness.round import Seed
from harness.seeds.antithetic import Antithetic
from harness.seeds.coupled import Coupled
from harness.seeds.epochs import Epochs
from harness.seeds.independent import Independent
from harness.seeds.recorded import Recorded

LAWS = (Independent(), Coupled(), Epochs(), Antithetic())
SIZE = 1024
LEVEL = 1e-3


def rejected(law, root="laws", size=SIZE):
    found = checks(law, root, size, LEVEL)
    return [c.claim for c, bad in zip(found, holm(found, LEVEL), strict=True) if bad]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_a_law_that_is_shipped_holds(law):
    assert rejected(law) == []
    assert untested(law) == []


def test_true_laws_are_rejected_no_more_often_than_the_level_says():
    """At a level of a tenth, of thirty families at most nine: more has a chance of 5e-4."""
    bad = 0
    for root in range(30):
        found = checks(Independent(), f"level {root}", 128, 0.1)
        bad += any(holm(found, 0.1))
    assert bad <= 9


def test_a_law_that_claims_nothing_is_not_tested():
    rows = tuple(tuple(f"{i:032x}" for i in range(5)) for _ in range(64))
    assert len(checks(Recorded(rows), "laws", 64, LEVEL)) == 1


@dataclass(frozen=True)
class Reused(Independent):
    """Seeds of a round used again in the next."""

    def draw(self, root, arm, n):
        return super().draw(root, arm, n // 2)


@dataclass(frozen=True)
class Counting(Independent):
    """`seed + n`, as other tools have it."""

    def draw(self, root, arm, n):
        w = super().draw(root, arm, 0)
        moved = (int(w.roll.hex, 16) + n) % 2**128
        return dataclasses.replace(super().draw(root, arm, n), roll=Seed(f"{moved:032x}"))


@dataclass(frozen=True)
class OneSeed(Independent):
    """One seed for task and rollout."""

    def draw(self, root, arm, n):
        w = super().draw(root, arm, n)
        return dataclasses.replace(w, roll=w.task)


@dataclass(frozen=True)
class OneBit(Independent):
    """One bit of the credit seed is a bit of the feedback seed."""

    def draw(self, root, arm, n):
        w = super().draw(root, arm, n)
        bit = int(w.feed.hex, 16) >> 7 & 1
        moved = int(w.credit.hex, 16) & ~(1 << 90) | bit << 90
        return dataclasses.replace(w, credit=Seed(f"{moved:032x}"))


@dataclass(frozen=True)
class Armless(Independent):
    """Arms that share everything, undeclared."""

    def draw(self, root, arm, n):
        return super().draw(root, "", n)


@dataclass(frozen=True)
class Uncoupled(Coupled):
    """A coupling that is declared and not there."""

    def draw(self, root, arm, n):
        return Independent().draw(root, arm, n)


@pytest.mark.parametrize(
    ("law", "claim"),
    [
        (Reused(), "rounds independent: all different"),
        (Counting(), "rounds independent: differences"),
        (OneSeed(), "parts independent within a round: collisions"),
        (OneBit(), "parts independent within a round: bit pairs"),
        (Armless(), "arms independent: collisions"),
        (Uncoupled(), "task and roll equal across arms: task"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Independent | Coupled) else "",
)
def test_a_planted_fault_is_rejected(law, claim):
    assert claim in rejected(law)
