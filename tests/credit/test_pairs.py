import pytest

from harness.credit.pairs import Pairs

NAN = float("nan")


def test_the_best_and_the_worst_of_each_group_are_a_pair(batch):
    G = Pairs()(*batch([0.5, 1, 0, 1, 3, 2, NAN, 2], 4))
    assert G.meta["use"] == "pairs"
    assert G.meta["pairs"] == [[1, 2], [4, 5]]
    assert G.meta["statistics"]["pairs"] == 2


def test_all_pairs_above_a_margin(batch):
    assert Pairs(select="all")(*batch([0.5, 1, 0], 3)).meta["pairs"] == [[0, 2], [1, 0], [1, 2]]
    assert Pairs(select="all", margin=0.5)(*batch([0.5, 1, 0], 3)).meta["pairs"] == [[1, 2]]


@pytest.mark.parametrize("select", ["best_worst", "all"])
def test_equal_lone_and_unscored_groups_give_none(batch, select):
    G = Pairs(select=select)(*batch([1, 1, NAN, 2, NAN, NAN], 2))
    assert G.meta["pairs"] == []
    assert not G.advantages_T.any()
    assert Pairs(select=select)(*batch([], 2)).meta["pairs"] == []


def test_advantages_show_who_was_chosen(batch):
    G = Pairs()(*batch([1, 0, 5, 5], 2))
    assert G.advantages_T.reshape(4, 3)[:, 1].tolist() == [1, -1, 0, 0]


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="select is 'x'; it is one of best_worst, all"):
        Pairs(select="x")
    with pytest.raises(ValueError, match=r"margin is -1.0; it is a finite number"):
        Pairs(margin=-1.0)
    with pytest.raises(ValueError, match="credit pairs compares the attempts"):
        Pairs().check(1)
