import pytest
from scipy.stats import chisquare

from harness.round import Seed
from harness.tasks.product import Product
from harness.tasks.vault import Vault

LEVEL = 1e-4


def test_problems_of_a_batch_are_independent():
    sampler = Product(Vault(codes=3), problems=2)
    counts: dict[str, int] = {}
    draws = 1800
    for i in range(draws):
        a, b = sampler(Seed("03" * 16).fold(i)).problems
        pair = a["answer"] + b["answer"]
        counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 9
    assert chisquare(list(counts.values())).pvalue > LEVEL


def test_a_problem_does_not_depend_on_the_size_of_the_batch():
    seed = Seed("04" * 16)
    small, large = (Product(Vault(), problems=n)(seed).problems for n in (2, 5))
    assert large[:2] == small


def test_the_probability_of_a_batch_is_the_product():
    sampler = Product(Vault(codes=4), problems=2)
    batch = sampler(Seed("05" * 16))
    assert sampler.probability(batch.problems) == 1 / 16
    assert sampler.probability(batch.problems[:1]) == 0.0


def test_an_empty_batch_is_refused():
    with pytest.raises(
        ValueError, match=r"^sampler.problems is 0; a batch has at least 1 problem$"
    ):
        Product(Vault(), problems=0)
