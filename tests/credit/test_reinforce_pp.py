import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.credit.reinforce_pp import ReinforcePP

MASKS = [[1, 1, 0, 0, 1, 1], [0, 1]]


def test_returns_are_carried_across_observations_and_whitened(batch):
    # returns: 1 on four tokens of the first episode, 0 on the one of the second
    G = ReinforcePP()(*batch([1.0, 0.0], 1, masks=MASKS))
    raw = np.array([1.0, 1, 1, 1, 0])
    expected = (raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8)
    assert_allclose(G.advantages_T[[0, 1, 4, 5, 7]], expected, rtol=1e-6)
    assert not G.advantages_T[[2, 3, 6]].any()


def test_unscorable_episodes_are_outside_of_the_whitening(batch):
    with_hole = ReinforcePP()(*batch([1.0, 0.0, float("nan")], 1, masks=[*MASKS, [1, 1]]))
    alone = ReinforcePP()(*batch([1.0, 0.0], 1, masks=MASKS))
    assert (with_hole.advantages_T[:8] == alone.advantages_T).all()
    assert not with_hole.advantages_T[8:].any()


def test_equal_returns_give_nothing(batch):
    assert not ReinforcePP()(*batch([0.1, 0.1], 1, masks=MASKS)).advantages_T.any()


def test_the_group_baseline_is_taken_before_whitening(batch):
    G = ReinforcePP(baseline="group")(*batch([1.0, 0.0, 5.0, 5.0], 2))
    white = np.array([0.5, 0.5, -0.5, -0.5, 0, 0, 0, 0])
    assert_allclose(
        G.advantages_T.reshape(4, 3)[:, 1:].reshape(-1),
        white / np.sqrt(white.var(ddof=1)),
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="reinforce_pp with a group baseline compares"):
        ReinforcePP(baseline="group").check(1)
    with pytest.raises(ValueError, match="baseline is 'mean'; it is one of none, group"):
        ReinforcePP(baseline="mean")
