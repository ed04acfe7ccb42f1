import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.credit.turn import Turn

MASKS = [[1, 0, 1, 1], [1, 0, 1]]
FIRST, SECOND = [0, 4], [2, 3, 6]
NAN = float("nan")


def test_a_turn_is_compared_with_the_same_turn_of_the_other_attempts(batch):
    G = Turn(scale="none")(*batch([1.0, 0.0], 2, masks=MASKS, turn_rewards=[0.25, 0.75, 0, 0]))
    assert G.advantages_T[FIRST].tolist() == [0.5, -0.5]
    assert G.advantages_T[SECOND].tolist() == [0.375, 0.375, -0.375]
    assert not G.advantages_T[[1, 5]].any()


def test_a_discount_of_zero_credits_a_turn_with_its_own_step(batch):
    G = Turn(gamma=0.0, compare="none")(
        *batch([1.0, 0.5], 2, masks=MASKS, turn_rewards=[0.25, 0.75, 0.5, 0])
    )
    assert G.advantages_T.tolist() == [0.25, 0, 0.75, 0.75, 0.5, 0, 0]


def test_a_deviation_scales_it(batch):
    G = Turn()(*batch([1.0, 0.0], 2, masks=MASKS, turn_rewards=[1, 0, 0, 0]))
    assert_allclose(G.advantages_T[FIRST], [0.5**0.5, -(0.5**0.5)], rtol=2e-6)
    assert not G.advantages_T[SECOND].any()


def test_groups_and_batches_compare_all_turns(batch):
    inputs = batch([2.0, 0.0, 4.0, 4.0], 2, masks=[[1], [1], [1], [1]])
    assert Turn(compare="group", scale="none")(*inputs).advantages_T.tolist() == [1, -1, 0, 0]
    assert Turn(compare="batch", scale="none")(*inputs).advantages_T.tolist() == [
        -0.5, -2.5, 1.5, 1.5,
    ]  # fmt: skip


def test_a_turn_that_nothing_is_compared_with_and_the_unscorable_get_nothing(batch):
    G = Turn()(*batch([1.0, 0.0], 2, masks=[[1, 0, 1], [1]], turn_rewards=[0, 1, 0]))
    assert G.advantages_T[2] == 0
    G = Turn()(*batch([1.0, NAN, 0.0], 3, masks=[[1]] * 3, turn_rewards=[1, 1, 0]))
    assert G.advantages_T[1] == 0
    assert G.advantages_T[0] > 0 > G.advantages_T[2]
    assert Turn()(*batch([], 2)).advantages_T.shape == (0,)


def test_episodes_of_one_turn_have_group_credit(batch, episode_credit):
    from harness.credit.group import Group

    rewards = [1, 0, 0.3, NAN, 2, 2]
    expected = episode_credit(Group(), rewards, 3)
    assert (episode_credit(Turn(), rewards, 3) == expected).all()
    assert np.any(expected)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="compare is 'x'; it is one of place, group, batch, none"):
        Turn(compare="x")
    with pytest.raises(ValueError, match="scale is 'group'; it is one of std, none"):
        Turn(scale="group")
    with pytest.raises(ValueError, match="turn with compare place compares the attempts"):
        Turn().check(1)
    Turn(compare="batch").check(1)
