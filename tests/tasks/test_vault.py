import re

import pytest
from scipy.stats import chisquare

from harness.round import Seed
from harness.tasks.vault import Vault

LEVEL = 1e-4
"""Chance that a true law is rejected by a test here; the seeds are fixed."""


def test_draws_follow_the_law():
    task = Vault(codes=4, locks=2)
    support = {problem["answer"]: p for problem, p in task.support()}
    counts = dict.fromkeys(support, 0)
    draws = 3200
    for i in range(draws):
        counts[task.draw(Seed("01" * 16).fold(i))["answer"]] += 1
    expected = [support[answer] * draws for answer in counts]
    assert chisquare(list(counts.values()), expected).pvalue > LEVEL


def test_the_support_sums_to_one_and_agrees_with_probability():
    task = Vault(codes=3, locks=2)
    support = list(task.support())
    assert sum(p for _, p in support) == pytest.approx(1.0)
    assert all(task.probability(problem) == p for problem, p in support)


def test_what_is_outside_the_law_has_probability_zero():
    task = Vault(codes=3)
    problem, _ = next(task.support())
    assert task.probability({**problem, "codes": ["7"], "answer": "7"}) == 0.0
    assert task.probability({**problem, "answer": "1"}) == 0.0
    assert task.probability({}) == 0.0


def test_a_draw_is_a_function_of_its_seed():
    assert Vault().draw(Seed("02" * 16)) == Vault().draw(Seed("02" * 16))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"codes": 17}, "task.codes is 17; a vault has 1 to 16 codes"),
        ({"codes": 0}, "task.codes is 0; a vault has 1 to 16 codes"),
        ({"locks": 0}, "task.locks is 0; a vault has at least 1 lock"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Vault(**fields)
