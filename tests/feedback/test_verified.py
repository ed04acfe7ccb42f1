import numpy as np
import pytest

from harness.feedback.verified import Verified


def test_an_episode_is_worth_the_sum_of_its_turns(inputs):
    F = Verified()(*inputs([[0.25, 0.5], [], [1.0]]))
    assert F.rewards_B.tolist() == [0.75, 0.0, 1.0]
    assert F.rewards_B.dtype == np.float64
    assert F.arrays["turn_rewards"].tolist() == [0.25, 0.5, 1.0]
    assert F.meta["components"] == ["verified"]


def test_trailing_episodes_without_turns_are_worth_nothing(inputs):
    assert Verified()(*inputs([[1.0], []])).rewards_B.tolist() == [1.0, 0.0]
    assert Verified()(*inputs([])).rewards_B.tolist() == []


def test_a_reward_that_is_not_finite_is_refused(inputs):
    with pytest.raises(
        ValueError, match=r"the environment rewarded episode 1 with nan; a reward is"
    ):
        Verified()(*inputs([[1.0], [float("nan")]]))
