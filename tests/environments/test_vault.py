import itertools
import re

import pytest

from harness.environments.turns import contradiction, drive, stop_of, trajectories
from harness.environments.vault import SYMBOLS, Vault
from harness.forms import Action, Call, Stop, as_turn
from harness.round import Seed
from harness.tasks.vault import Vault as Task

SEED = Seed("00" * 16)
PROBLEM = {"messages": [{"role": "user", "content": "vault closed"}], "codes": ["3"], "answer": "3"}


def total(environment, words, problem=PROBLEM):
    actions = [Action(word) for word in words]
    events = [event for _, event in drive(environment, problem, SEED, actions)]
    return sum(event.reward for event in events), events


def test_looking_then_opening_earns_everything():
    reward, events = total(Vault(), ["look", "3"])
    assert reward == 1.0
    assert [e.messages[0]["content"] for e in events] == ["code 3", "opened"]
    assert events[-1].done
    assert events[-1].stop is None


def test_rewards_of_every_other_way():
    assert total(Vault(), ["3"])[0] == 0.2
    assert total(Vault(), ["4"])[0] == 0.0
    assert total(Vault(), ["look", "4"])[0] == 0.2
    assert total(Vault(), ["look", "look", "vault", "3"])[0] == 1.0
    assert total(Vault(), ["vault", "", "33", "code 3"])[0] == 0.0


def test_the_turn_budget_stops_an_episode():
    _, events = total(Vault(turns=2), ["look", "look", "3"])
    assert len(events) == 2
    assert (events[-1].done, events[-1].stop) == (True, Stop.TURN_BUDGET)


def test_locks_in_a_row_share_the_reward():
    problem = {**PROBLEM, "codes": ["3", "5"]}
    assert total(Vault(), ["look", "3", "look", "5"], problem)[0] == pytest.approx(1.0)
    assert total(Vault(), ["look", "3", "5"], problem)[0] == pytest.approx(0.6)
    assert total(Vault(), ["look", "3", "3"], problem)[0] == pytest.approx(0.5)


def test_tool_calls_do_what_words_do():
    calls = [Call("look", {}, "look()"), Call("open", {"code": "3"}, "open(3)")]
    actions = [Action("", (call,)) for call in calls]
    events = [event for _, event in drive(Vault(), PROBLEM, SEED, actions)]
    assert sum(e.reward for e in events) == 1.0
    assert [e.messages[0]["role"] for e in events] == ["tool", "tool"]
    assert events[0].calls == ({"name": "look", "arguments": {}, "result": "code 3"},)
    broken = Action("", (Call("open", None, "open("),))
    assert [e.messages[0]["content"] for _, e in drive(Vault(), PROBLEM, SEED, [broken])] == [
        "nothing"
    ]


def test_no_observation_shows_the_code_before_a_look():
    words = [*SYMBOLS[:4], "vault", "open"]
    for code in SYMBOLS[:4]:
        for path in itertools.product(words, repeat=2):
            problem = {**PROBLEM, "codes": [code], "answer": code}
            start = Vault().reset(problem, SEED)[1]
            shown = start + [m for e in total(Vault(), path, problem)[1] for m in e.messages]
            assert code not in " ".join(m["content"] for m in shown).split()
            same = Vault().reset(PROBLEM, SEED)[1]
            assert start == same


def test_equal_keys_mean_equal_states():
    def key(*words):
        return total(Vault(), [*words, "vault"])[1][-1].key

    assert key("look") == key("look")
    assert len({key(), key("vault"), key("look"), key("look", "look")}) == 4


def test_every_stopped_trajectory_is_enumerated_once_and_admitted():
    texts = ["look", "3", "4", "vault"]
    paths = list(trajectories(Vault(turns=2), PROBLEM, SEED, texts, limit=100))
    acted = [tuple(turn["action"]["text"] for turn in path) for path in paths]
    assert len(set(acted)) == len(acted) == 2 + 2 * 4
    assert all(Vault(turns=2).admits(PROBLEM, path) is None for path in paths)
    # a uniform policy over these texts: the probabilities of stopped trajectories sum to one
    assert sum(4.0 ** -len(path) for path in paths) == 1.0
    assert {stop_of(path[-1]) for path in paths} == {Stop.TERMINATED, Stop.TURN_BUDGET}


def test_enumeration_is_refused_beyond_its_limit():
    with pytest.raises(ValueError, match=r"^there are more than 5 trajectories; enumerate fewer"):
        list(trajectories(Vault(), PROBLEM, SEED, ["look", "3", "4"], limit=5))


def test_redriving_finds_what_was_altered():
    turns = [as_turn(a, e) for a, e in drive(Vault(), PROBLEM, SEED, [Action("look"), Action("3")])]
    assert contradiction(Vault(), PROBLEM, SEED, turns) is None
    turns[1]["event"]["reward"] = 1.0
    assert Vault().admits(PROBLEM, turns) == "turn 1 has reward 1.0, but the environment gives 0.8"
    late = [as_turn(a, e) for a, e in drive(Vault(), PROBLEM, SEED, [Action("3")])] * 2
    assert Vault().admits(PROBLEM, late) == (
        "the episode ends after turn 0, but 2 turns are recorded"
    )


def test_a_random_policy_starts_low():
    words = ["look", *SYMBOLS, *(f"w{i}" for i in range(15))]
    paths = trajectories(Vault(turns=3), PROBLEM, SEED, words, limit=10**5)
    mean = sum(len(words) ** -len(p) * sum(turn["event"]["reward"] for turn in p) for p in paths)
    assert mean < 0.05


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"turns": 0}, "environment.turns is 0; an episode takes at least 1 turn"),
        (
            {"look": 0.5},
            "environment.look 0.5 and open 0.8 must be at least 0 and sum to at most 1",
        ),
        ({"lucky": 0.9}, "environment.lucky is 0.9; opening by luck earns at most open 0.8"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Vault(**fields)


def test_the_environment_accepts_every_problem_of_the_task():
    for problem, _ in Task(codes=4, locks=2).support():
        assert Vault().reset(problem, SEED)[1] == PROBLEM["messages"]
