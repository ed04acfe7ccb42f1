import itertools

from scipy.stats import chisquare

from harness.round import Seed
from harness.tasks.uniform import below, rank_without

LEVEL = 1e-4


def test_the_ends_of_the_seed_space_are_the_ends_of_the_range():
    assert below(Seed("0" * 32), 7) == 0
    assert below(Seed("f" * 32), 7) == 6


def test_integers_are_uniform():
    counts = [0] * 7
    for i in range(2100):
        counts[below(Seed("08" * 16).fold(i), 7)] += 1
    assert chisquare(counts).pvalue > LEVEL


def test_samples_without_replacement_are_uniform_on_ordered_samples():
    counts = dict.fromkeys(itertools.permutations(range(4), 2), 0)
    for i in range(2400):
        first, second = rank_without(Seed("09" * 16).fold(i), 4, 2)
        counts[first, second] += 1
    assert chisquare(list(counts.values())).pvalue > LEVEL


def test_a_whole_sample_is_a_permutation():
    assert sorted(rank_without(Seed("0a" * 16), 9, 9)) == list(range(9))
    assert len(set(rank_without(Seed("0a" * 16), 10**30, 5))) == 5
