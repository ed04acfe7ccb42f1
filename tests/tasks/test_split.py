import collections

import pytest

from harness.laws.statistics import g_test
from harness.round import Seed
from harness.tasks.arithmetic import Arithmetic
from harness.tasks.split import Split
from harness.tasks.vault import Vault

SUMS = Arithmetic(operators=("+",))


def expressions(task):
    return {problem["expression"] for problem, _ in task.support()}


def test_the_parts_are_disjoint_and_make_the_whole():
    train = Split(SUMS, share=0.3)
    held_out = train.held_out()
    a, b = expressions(train), expressions(held_out)
    assert a | b == expressions(SUMS)
    assert not a & b
    assert (len(a), len(b)) == (train.size, held_out.size)
    assert 15 <= len(b) <= 45


def test_each_part_is_the_tasks_law_on_it():
    for part in (Split(SUMS), Split(SUMS).held_out()):
        law = {problem["expression"]: p for problem, p in part.support()}
        assert sum(law.values()) == pytest.approx(1)
        drawn = [part.draw(Seed(f"{i:032x}").fold("x")) for i in range(3000)]
        seen = collections.Counter(problem["expression"] for problem in drawn)
        assert g_test("S", "its law", seen, law, level=1e-4).p > 1e-4
        assert part.probability(drawn[0]) == pytest.approx(law[drawn[0]["expression"]])
    assert Split(SUMS).probability(Split(SUMS).held_out().nth(0)) == 0


def test_a_task_too_large_to_list_is_drawn_from_until_it_fits():
    large = Split(Arithmetic(digits=12), share=0.1)
    assert not hasattr(large, "size")
    held_out = large.held_out()
    for i in range(20):
        seed = Seed(f"{i:032x}").fold("x")
        assert large.holds(large.draw(seed))
        problem = held_out.draw(seed)
        assert held_out.holds(problem)
        assert not large.holds(problem)
        assert problem == held_out.draw(seed)


def test_problems_that_look_alike_stay_together_so_vaults_cannot_be_split():
    with pytest.raises(ValueError, match=r"leaves no problem to \w+: Vault has 8 problems"):
        Split(Vault())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"share": 1.0}, "task.share is 1.0; it lies between 0 and 1"),
     ({"part": "test"}, "task.part is 'test'; it is train or held_out")],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Split(SUMS, **settings)
