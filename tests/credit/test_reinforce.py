import pytest
from numpy.testing import assert_allclose

from harness.credit.reinforce import Reinforce

MASK = [0, 1, 1, 0, 1]
NAN = float("nan")


def test_without_baseline_credit_is_the_return(batch):
    G = Reinforce(baseline="none")(*batch([1.0], 1, masks=[MASK], turn_rewards=[0.25, 0.75]))
    assert G.advantages_T.tolist() == [0, 1, 1, 0, 0.75]
    G = Reinforce(baseline="none", gamma=0.5)(*batch([1.0], 1, masks=[MASK]))
    assert G.advantages_T.tolist() == [0, 0.5, 0.5, 0, 1]


def test_of_whole_episodes_it_is_the_reward_about_the_batch(episode_credit):
    assert_allclose(episode_credit(Reinforce(), [1, 0, 0, NAN], 2), [2 / 3, -1 / 3, -1 / 3, 0])


def test_a_group_baseline_is_its_own_problems(episode_credit):
    got = episode_credit(Reinforce(baseline="group"), [1, 0, 5, 5], 2)
    assert got.tolist() == [0.5, -0.5, 0, 0]


def test_a_group_of_one_is_refused_only_with_a_group_baseline():
    Reinforce(baseline="batch").check(1)
    with pytest.raises(ValueError, match="reinforce with a group baseline compares the attempts"):
        Reinforce(baseline="group").check(1)


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="discount is 'step'; it is one of token, turn"):
        Reinforce(discount="step")
    with pytest.raises(ValueError, match="baseline is 'x'; it is one of none, batch, group"):
        Reinforce(baseline="x")


def test_an_empty_batch_and_an_episode_without_actions_are_fine(batch):
    assert Reinforce()(*batch([], 1)).advantages_T.shape == (0,)
    G = Reinforce()(*batch([1.0, 2.0], 1, masks=[[0], [1]]))
    assert G.advantages_T.tolist() == [0, 0]
