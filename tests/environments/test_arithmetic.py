import pytest

from harness.environments.arithmetic import Arithmetic, score
from harness.forms import Action, as_turn
from harness.round import Seed
from harness.tasks.arithmetic import Arithmetic as Task

SEED = Seed("00" * 16)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("7", 1.0), (" 7\n", 1.0), ("8", 0.1), ("-7", 0.1), ("07", 0.1), ("7.", 0.0), ("7.0", 0.0),
        ("The answer is 7", 0.0), ("", 0.0), ("٧", 0.0), ("9" * 9999, 0.1),
    ],
)  # fmt: skip
def test_the_reward_of_an_answer(text, reward):
    assert score(text, "7", 0.1) == reward


def test_an_episode_is_one_turn_and_can_be_driven_again():
    problem = Task(operators=("+",)).nth(43)
    state, messages = Arithmetic().reset(problem, SEED)
    assert messages == problem["messages"]
    _, event = Arithmetic().step(state, Action("7"))
    assert (event.reward, event.done, event.stop, event.messages) == (1.0, True, None, [])
    turn = as_turn(Action("7"), event)
    assert Arithmetic().admits(problem, [turn]) is None
    assert Arithmetic().admits(problem, [turn, turn]) == (
        "the episode ends after turn 0, but 2 turns are recorded"
    )


def test_the_question_does_not_hold_the_answer_as_such():
    for problem, _ in Task(operators=("+",)).support():
        _, messages = Arithmetic().reset(problem, SEED)
        expression = problem["expression"]
        assert messages[0]["content"] == f"What is {expression}? Answer with a number only."
        assert set(messages[0]) == {"role", "content"}


def test_a_format_reward_of_one_is_refused():
    with pytest.raises(
        ValueError, match=r"^environment.format_reward is 1.0; it must be in \[0, 1\)$"
    ):
        Arithmetic(format_reward=1.0)
