import re

import pytest

from harness.environments.arithmetic_tool import ArithmeticTool
from harness.environments.turns import drive
from harness.forms import Action, Call, Stop, as_turn
from harness.round import Seed
from harness.tasks.arithmetic import Arithmetic as Task

SEED = Seed("00" * 16)
PROBLEM = Task(digits=2, operators=("*",)).nth(4731)


def calling(*expressions):
    calls = (Call("calculator", {"expression": e}, e) for e in expressions)
    return Action("", tuple(calls))


def events(environment, *actions):
    return [event for _, event in drive(environment, PROBLEM, SEED, actions)]


def test_a_call_is_answered_and_the_answer_scored():
    assert PROBLEM["expression"] == "31 * 47"
    first, last = events(ArithmeticTool(), calling("31 * 47"), Action("1457"))
    assert first.messages == [{"role": "tool", "content": "1457"}]
    assert (first.reward, first.done) == (0.0, False)
    assert (last.reward, last.done, last.stop) == (1.0, True, None)


def test_a_failing_call_is_data():
    (event,) = events(ArithmeticTool(), calling("9**9**9"))
    assert event.messages == [{"role": "tool", "content": "error: the numbers are too large"}]
    assert not event.done
    (event,) = events(ArithmeticTool(), Action("", (Call("", None, "{nonsense"),)))
    assert event.messages[0]["content"] == "error: there is no tool ''; there is calculator"


def test_limits_are_counts():
    made = events(ArithmeticTool(turns=2), calling("1"), calling("2"), Action("1457"))
    assert [e.done for e in made] == [False, True]
    assert made[-1].stop == Stop.TURN_BUDGET
    (event,) = events(ArithmeticTool(calls=1), calling("1", "2"))
    assert [m["content"] for m in event.messages] == ["1", "error: all 1 calls are spent"]


def test_recorded_turns_are_driven_again():
    actions = [calling("31 * 47", "oops"), Action("1457")]
    turns = [as_turn(a, e) for a, e in drive(ArithmeticTool(), PROBLEM, SEED, actions)]
    assert ArithmeticTool().admits(PROBLEM, turns) is None
    turns[0]["event"]["messages"][0]["content"] = "1458"
    assert "turn 0 has messages" in (ArithmeticTool().admits(PROBLEM, turns) or "")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"turns": 0}, "environment.turns is 0; an episode takes at least 1 turn"),
        ({"calls": -1}, "environment.calls is -1; it must be 0 or more"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ArithmeticTool(**fields)
