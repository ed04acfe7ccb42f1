import numpy as np
import pytest

from harness.pages.choice import choose, spread


def test_all_are_shown_where_they_fit():
    assert choose(np.zeros(6), 3, 6) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("problems", "attempts"), [(1, 1000), (1000, 1), (8, 16), (33, 7), (65, 2)]
)
def test_a_choice_keeps_the_limit_and_the_extremes(problems, attempts):
    rewards = np.random.default_rng(0).random(problems * attempts)
    rows = choose(rewards, attempts, 64)
    chosen = [b for row in rows for b in row]
    assert 32 <= len(chosen) <= 64
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 0
    for row in rows:
        p = row[0] // attempts
        own = rewards[p * attempts : (p + 1) * attempts]
        shown = rewards[row]
        assert (shown.min(), shown.max()) == (own.min(), own.max())


def test_unscored_attempts_count_as_the_worst():
    assert choose(np.array([0.5, np.nan, 1.0, 0.7, 0.8, 0.9]), 6, 4)[0][:2] == [0, 1]


def test_the_first_is_among_three():
    assert spread(np.array([5.0, 1, 2, 3, 4, 9]), 3) == [0, 1, 5]
    assert spread(np.array([5.0, 1, 9]), 1) == [0]
