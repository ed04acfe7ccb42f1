import pytest

from harness.round import Seed
from harness.seeds.independent import PARTS
from harness.seeds.recorded import Recorded

ROW = tuple(f"{i:032x}" for i in range(5))


def test_a_round_takes_its_row_whatever_root_and_arm():
    law = Recorded(rows=(ROW, ROW[::-1]))
    for root, arm in (("1", "a"), ("2", "b")):
        assert law.draw(root, arm, 1).exact() == dict(zip(PARTS, ROW[::-1], strict=True))
    assert law.draw("1", "a", 0).task == Seed("0" * 32)


def test_it_claims_no_law():
    assert Recorded.claims == ()


@pytest.mark.parametrize("n", [2, 7])
def test_a_round_beyond_the_list_is_refused(n):
    message = f"round {n} has no recorded seeds; the list has 2 rows"
    with pytest.raises(ValueError, match=message):
        Recorded(rows=(ROW, ROW)).draw("1", "a", n)


@pytest.mark.parametrize(
    "row", [ROW[:4], (*ROW, ROW[0]), (*ROW[:4], "0" * 31), (*ROW[:4], "G" * 32), ()]
)
def test_a_row_that_is_not_five_seeds_is_refused(row):
    with pytest.raises(ValueError, match=r"seeds\.law\.rows\[1\] is .*; a row is five strings of"):
        Recorded(rows=(ROW, row))


def test_a_round_before_the_first_is_refused():
    with pytest.raises(ValueError, match="round -1 has no recorded seeds"):
        Recorded(rows=(ROW,)).draw("1", "a", -1)
