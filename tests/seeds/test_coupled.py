from harness.seeds.coupled import SHARED, Coupled
from harness.seeds.independent import PARTS


def test_task_and_roll_are_equal_across_arms_and_nothing_else_is():
    for n in range(5):
        a, b = Coupled().draw("1", "a", n), Coupled().draw("1", "b", n)
        shared = {part for part in PARTS if getattr(a, part) == getattr(b, part)}
        assert shared == set(SHARED) == {"task", "roll"}


def test_rounds_roots_and_parts_differ():
    found = [
        getattr(Coupled().draw(root, "a", n), part).hex
        for root in ("1", "2") for n in range(20) for part in PARTS
    ]  # fmt: skip
    assert len(set(found)) == len(found)


def test_an_arm_cannot_take_the_shared_seeds():
    # an arm may be named as the shared path is
    a = Coupled().draw("1", "shared", 0)
    assert a.task != a.feed
    assert a.feed not in (Coupled().draw("1", "b", 0).task, Coupled().draw("1", "b", 0).roll)


def test_drawing_is_pure():
    assert Coupled().draw("1", "a", 3) == Coupled().draw("1", "a", 3)


def test_its_claims_name_the_coupling():
    assert "task and roll equal across arms" in Coupled.claims
    assert "arms independent" not in Coupled.claims
