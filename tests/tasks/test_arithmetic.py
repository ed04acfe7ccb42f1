import re

import pytest
from scipy.stats import chisquare

from harness.round import Seed
from harness.tasks.arithmetic import Arithmetic

LEVEL = 1e-4


def test_the_wording_is_the_one_that_was_asked_for():
    problem = Arithmetic(operators=("+",)).nth(43)
    assert problem == {
        "messages": [{"role": "user", "content": "What is 3 + 4? Answer with a number only."}],
        "expression": "3 + 4",
        "answer": "7",
    }


def test_draws_follow_the_law():
    task = Arithmetic(operators=("+", "*"))
    counts: dict[str, int] = {}
    draws = 4000
    for i in range(draws):
        problem = task.draw(Seed("06" * 16).fold(i))
        counts[problem["expression"]] = counts.get(problem["expression"], 0) + 1
    observed = [counts.get(problem["expression"], 0) for problem, _ in task.support()]
    assert sum(observed) == draws
    assert chisquare(observed).pvalue > LEVEL


@pytest.mark.parametrize(
    "task", [Arithmetic(), Arithmetic(terms=3, operators=("-", "*")), Arithmetic(form="story")]
)
def test_the_answer_is_the_value_and_the_support_is_the_law(task):
    problems = list(task.support())
    assert len({p["expression"] for p, _ in problems}) == len(problems) == task.size
    assert sum(p for _, p in problems) == pytest.approx(1.0)
    for problem, p in problems[::7]:
        # our own texts, of digits and three operators
        assert problem["answer"] == str(eval(problem["expression"]))
        assert task.probability(problem) == p


def test_what_is_outside_the_law_has_probability_zero():
    task = Arithmetic()
    problem = task.nth(5)
    for change in (
        {"answer": "1000"}, {"expression": "5 / 0"}, {"expression": "50 + 0"}, {"expression": ""},
        {"messages": []}, {"expression": "5 + 0 + 1"}, {"expression": "² + 0"},
    ):  # fmt: skip
        assert task.probability({**problem, **change}) == 0.0


def test_large_spaces_are_drawn_from_without_being_listed():
    task = Arithmetic(digits=12, terms=12)
    problem = task.draw(Seed("07" * 16))
    assert problem["answer"] == str(eval(problem["expression"]))
    assert task.probability(problem) > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"digits": 0}, "task.digits is 0; an operand has 1 to 12 digits"),
        ({"terms": 1}, "task.terms is 1; an expression has 2 to 12 terms"),
        ({"operators": ("/",)}, "task.operators is ['/']; give some of + - *, each once"),
        ({"operators": ()}, "task.operators is []; give some of + - *, each once"),
        ({"operators": ("+", "+")}, "task.operators is ['+', '+']; give some of + - *, each once"),
        ({"form": "poem"}, "task.form is 'poem'; it is expression or story"),
        ({"form": "story", "terms": 3}, "task.terms is 3; a story has 2 terms"),
        ({"wording": "Hm?"}, "task.wording is 'Hm?'; it must have a place {expression}"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Arithmetic(**fields)
