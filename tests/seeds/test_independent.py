import hashlib

import numpy as np
from scipy import stats

from harness.identity import canonical
from harness.round import Seed
from harness.seeds.independent import PARTS, Independent, root_seed

LAW = Independent()


def every(rounds: int = 40) -> dict[tuple[str, str, int, str], str]:
    return {
        (root, arm, n, part): getattr(LAW.draw(root, arm, n), part).hex
        for root in ("1", "2") for arm in ("a", "b") for n in range(rounds) for part in PARTS
    }  # fmt: skip


def test_drawing_is_pure():
    forth = every()
    np.random.seed(1)
    assert every() == forth
    assert LAW.draw("1", "a", 7) == Independent().draw("1", "a", 7)


def test_no_two_parts_rounds_arms_or_roots_share_a_seed():
    assert len(set(every().values())) == len(every())


def test_a_seed_is_its_path():
    assert LAW.draw("1", "a", 4).credit == root_seed("1").fold("arm", "a", "round", 4).fold(
        "credit"
    )
    body = bytes(16) + canonical(["root", "1"])
    expected = hashlib.sha256(b"harness/seed/v1\0" + body).hexdigest()[:32]
    assert root_seed("1") == Seed(expected)


def test_marginals_are_uniform_and_parts_uncorrelated():
    draws = [LAW.draw("9", "x", n) for n in range(2000)]
    table = np.array([[getattr(d, part).key / 2**64 for part in PARTS] for d in draws])
    for column in table.T:
        assert stats.kstest(column, "uniform").pvalue > 0.001
    correlation = np.corrcoef(np.hstack([table[1:], table[:-1]]).T)
    assert np.abs(correlation - np.eye(10)).max() < 0.1


def test_it_claims_what_it_does():
    assert "rounds independent" in Independent.claims
    assert "arms independent" in Independent.claims
