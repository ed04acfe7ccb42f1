import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.credit.gigpo import GiGPO, state_labels
from harness.credit.group import Group

MASKS = [[1, 0, 1], [1, 0, 1], [1], [1]]
STATES = ["start", "door", "start", "start", "start", "start"]
REWARDS = [1.0, 0.0, 1.0, 1.0]
TURNS = [0, 2, 3, 5, 6, 7]


def test_turns_in_an_equal_state_are_compared_within_their_problem(batch):
    inputs = batch(REWARDS, 2, masks=MASKS, states=STATES)
    assert state_labels(inputs[1]).tolist() == [0, 1, 0, 0, 2, 2]
    G = GiGPO(gamma=0.5, scale="none", weight=2.0)(*inputs)
    # returns .5 | 1 and 0 | 0; the state `start` of problem 0 was met with .5, 0 and 0
    steps = np.array([1 / 3, 0, -1 / 6, -1 / 6, 0, 0])
    episodes = np.array([0.5, 0.5, -0.5, -0.5, 0, 0])
    assert_allclose(G.advantages_T[TURNS], episodes + 2 * steps, rtol=1e-6)


def test_a_deviation_scales_both_parts(batch):
    G = GiGPO(gamma=1.0)(*batch([1.0, 0.0], 2, masks=[[1], [1]], states=["s", "s"]))
    assert_allclose(G.advantages_T, [2**0.5, -(2**0.5)], rtol=3e-6)


@pytest.mark.parametrize("states", [["a", "b", "c", "d", "e", "f"], [""] * 6])
def test_with_all_states_distinct_or_unnamed_it_is_group_credit(batch, states):
    inputs = batch(REWARDS, 2, masks=MASKS, states=states)
    assert (GiGPO()(*inputs).advantages_T == Group()(*inputs).advantages_T).all()


def test_the_unscorable_get_nothing_and_an_empty_batch_is_fine(batch):
    G = GiGPO()(*batch([1.0, float("nan"), 0.0], 3, masks=[[1]] * 3, states=["s"] * 3))
    assert G.advantages_T[1] == 0
    assert G.advantages_T[0] > 0
    assert GiGPO()(*batch([], 2)).advantages_T.shape == (0,)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="credit gigpo compares the attempts"):
        GiGPO().check(1)
    with pytest.raises(ValueError, match="scale is 'x'; it is one of std, none"):
        GiGPO(scale="x")
    with pytest.raises(ValueError, match=r"weight -1.0; the first is above 0"):
        GiGPO(weight=-1.0)
