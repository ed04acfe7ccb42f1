import itertools
import re

import pytest
from scipy.stats import chisquare

from harness.round import Seed
from harness.tasks.vault import Vault
from harness.tasks.without_replacement import WithoutReplacement

LEVEL = 1e-4


def test_batches_follow_the_declared_law():
    sampler = WithoutReplacement(Vault(codes=4), problems=2)
    pairs = list(itertools.permutations([p for p, _ in Vault(codes=4).support()], 2))
    assert sum(sampler.probability(pair) for pair in pairs) == pytest.approx(1.0)
    counts = {a["answer"] + b["answer"]: 0 for a, b in pairs}
    for i in range(2400):
        a, b = sampler(Seed("0b" * 16).fold(i)).problems
        counts[a["answer"] + b["answer"]] += 1
    assert chisquare(list(counts.values())).pvalue > LEVEL


def test_equal_problems_have_probability_zero():
    sampler = WithoutReplacement(Vault(codes=4), problems=2)
    one = Vault(codes=4).nth(1)
    assert sampler.probability([one, one]) == 0.0
    assert sampler.probability([one]) == 0.0
    assert sampler.probability([one, Vault(codes=5).nth(4)]) == 0.0


class Unnumbered:
    def draw(self, seed):
        return {}


@pytest.mark.parametrize(
    ("task", "problems", "message"),
    [
        (
            Vault(codes=4), 5,
            "sampler.problems is 5; a batch without replacement has at most the 4 problems of the "
            "task",
        ),
        (Vault(), 0, "sampler.problems is 0; a batch has at least 1 problem"),
        (
            Unnumbered(), 1,
            "sampler=without_replacement needs a task whose problems are numbered, which "
            "Unnumbered is not; use sampler=product",
        ),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(task, problems, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        WithoutReplacement(task, problems)
