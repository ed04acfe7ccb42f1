from harness.environments.prompt import Prompt
from harness.forms import Action, as_turn
from harness.round import Seed

SEED = Seed("00" * 16)
PROBLEM = {"messages": [{"role": "user", "content": "Say a."}], "answer": "secret", "row": 0}


def test_it_ends_after_one_action_without_reward():
    state, messages = Prompt().reset(PROBLEM, SEED)
    assert messages == PROBLEM["messages"]
    _, event = Prompt().step(state, Action("a"))
    assert (event.reward, event.done, event.messages) == (0.0, True, [])
    assert Prompt().admits(PROBLEM, [as_turn(Action("a"), event)]) is None


def test_the_policy_is_not_shown_the_answer():
    assert "secret" not in str(Prompt().reset(PROBLEM, SEED))
