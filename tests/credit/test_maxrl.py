import pytest
from numpy.testing import assert_allclose

from harness.credit.maxrl import MaxRL


def test_credit_is_in_units_of_the_success_rate(episode_credit):
    assert_allclose(episode_credit(MaxRL(), [1, 0, 0, 0], 4), [3, -1, -1, -1])
    assert_allclose(episode_credit(MaxRL(), [1, 1, 1, 0], 4), [1 / 3] * 3 + [-1], rtol=1e-6)


def test_groups_that_always_or_never_succeed_get_nothing(episode_credit):
    assert episode_credit(MaxRL(), [0, 0, 1, 1, 0.3, float("nan")], 2).tolist() == [0] * 6


def test_rewards_below_zero_are_refused(episode_credit):
    with pytest.raises(ValueError, match=r"divides by a success rate, but a reward is -1.0"):
        episode_credit(MaxRL(), [1, -1], 2)


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="credit maxrl compares the attempts at a problem"):
        MaxRL().check(1)
