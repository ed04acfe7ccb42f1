import pytest

from harness.credit.best_of import BestOf

NAN = float("nan")


def kept(batch, credit, rewards, attempts):
    G = credit(*batch(rewards, attempts))
    assert G.meta["use"] == "supervised"
    rows = G.advantages_T.reshape(len(rewards), 3)
    assert not rows[:, 0].any()
    assert G.meta["statistics"]["kept"] == rows[:, 1].sum()
    return rows[:, 1].tolist()


def test_the_best_of_each_group_is_imitated(batch):
    assert kept(batch, BestOf(), [0, 1, NAN, 5, 4, -1], 3) == [0, 1, 0, 1, 0, 0]
    assert kept(batch, BestOf(keep=2), [0, 1, NAN, 5, 4, -1], 3) == [1, 1, 0, 1, 1, 0]


def test_the_first_among_equals_stands_for_them(batch):
    assert kept(batch, BestOf(), [1, 1, 1], 3) == [1, 0, 0]


def test_below_the_threshold_nothing_is(batch):
    assert kept(batch, BestOf(threshold=1.0), [0, 0.5, 1, 2], 2) == [0, 0, 0, 1]
    assert kept(batch, BestOf(), [NAN, NAN], 2) == [0, 0]
    assert BestOf()(*batch([], 2)).advantages_T.shape == (0,)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="keep is 0; at least 1 attempt is kept"):
        BestOf(keep=0)
    with pytest.raises(ValueError, match="threshold is nan; it is a finite number or null"):
        BestOf(threshold=NAN)
    with pytest.raises(ValueError, match="keeps 2 of 2 attempts, which selects nothing"):
        BestOf(keep=2).check(2)
    BestOf(keep=2, threshold=1.0).check(2)
