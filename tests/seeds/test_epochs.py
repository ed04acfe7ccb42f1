from harness.seeds.epochs import Epochs
from harness.seeds.independent import Independent


def test_the_task_seed_is_a_key_and_the_round():
    first, later = Epochs().draw("1", "a", 0), Epochs().draw("1", "a", 300)
    assert first.task.hex[:24] == later.task.hex[:24]
    assert (first.task.hex[24:], later.task.hex[24:]) == ("00000000", "0000012c")


def test_the_other_parts_are_those_of_the_product_law():
    ours, product = Epochs().draw("1", "a", 5), Independent().draw("1", "a", 5)
    for part in ("roll", "feed", "credit", "update"):
        assert getattr(ours, part) == getattr(product, part)


def test_roots_and_arms_have_their_own_keys():
    keys = {Epochs().draw(root, arm, 0).task.hex[:24] for root in "12" for arm in "ab"}
    assert len(keys) == 4
