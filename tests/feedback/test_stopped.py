import numpy as np
import pytest
from numpy.testing import assert_array_equal

from harness.feedback.stopped import Stopped
from harness.feedback.sum import Sum
from harness.feedback.verified import Verified
from harness.forms import Stop, Trajectories


@pytest.fixture
def given(inputs):
    X, Z, seed = inputs([[1.0]] * 3)
    stop = np.array([Stop.TERMINATED, Stop.TOKEN_BUDGET, Stop.TURN_BUDGET], np.uint8)
    return X, Trajectories(Z.meta, {**Z.arrays, "stop": stop}), seed


def test_a_reward_is_given_by_reason(given):
    F = Stopped({"turn_budget": -0.5, "token_budget": None})(*given)
    assert_array_equal(F.rewards_B, [0, np.nan, -0.5])
    assert Stopped()(*given).rewards_B.tolist() == [0, 0, 0]


def test_in_a_sum_it_takes_cut_off_episodes_out(given):
    F = Sum({"verified": Verified(), "stopped": Stopped({"token_budget": None})})(*given)
    assert_array_equal(F.rewards_B, [1, np.nan, 1])


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(
        ValueError, match="rewards names 'tired', which is no stop reason; terminat"
    ):
        Stopped({"tired": 1.0})
    with pytest.raises(ValueError, match=r"rewards.timeout is inf; it is a finite number or null"):
        Stopped({"timeout": float("inf")})
