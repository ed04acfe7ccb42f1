import numpy as np
import pytest

from harness.environments.vault import Vault
from harness.exactness.redrive import admits, episodes, findings, sample_of
from harness.forms import Stop


@pytest.fixture
def played(opened):
    """X, Z and ω_roll of a recorded round, and its environment."""
    recorded = opened(1)
    return Vault(), recorded.value("S"), recorded.value("R"), recorded.seeds.roll


def altered(Z, b, change, **arrays):
    """Z with one episode's turns changed."""
    import copy

    all_of = copy.deepcopy(Z.episodes)
    change(all_of[b]["turns"])
    return Z.replace({"episodes": all_of}, **arrays)


def test_recorded_episodes_are_admitted_and_happen_again(played):
    environment, X, Z, roll = played
    assert findings(environment, X, Z, roll) == []
    assert findings(environment, X, Z, roll, size=3, key="any") == []


def test_an_observation_that_no_seed_gives_is_refused(played):
    environment, X, Z, roll = played
    b, n = next(
        (b, n) for b, e in enumerate(Z.episodes) for n, turn in enumerate(e["turns"])
        if turn["action"]["text"] == "look"
    )  # fmt: skip

    def lie(turns):
        turns[n]["event"]["messages"][0]["content"] = "code z"

    forged = altered(Z, b, lie)
    (why,) = admits(environment, X, forged, range(len(Z.stop_B)))
    assert why.startswith(f"episode {b}: turn {n} has messages")
    (why,) = episodes(environment, X, forged, roll, range(len(Z.stop_B)))
    assert why.startswith(f"episode {b} ")
    assert "event" not in why
    assert "'code z'" in why


def test_a_reward_that_is_not_the_events_is_refused(played):
    environment, X, Z, roll = played
    rewards = Z.arrays["turn_rewards"].copy()
    rewards[0] += 1
    assert findings(environment, X, Z.replace({}, turn_rewards=rewards), roll)[0].startswith(
        "episode 0: turn 0 is rewarded 1"
    )


def test_an_end_that_is_none_is_refused(played):
    environment, X, Z, _ = played
    ended = int(np.flatnonzero(Z.stop_B == Stop.TERMINATED)[0])
    stop = Z.stop_B.copy()
    stop[ended] = Stop.TURN_BUDGET
    (why,) = admits(environment, X, Z.replace({}, stop=stop), [ended])
    assert why == f"episode {ended}: it stopped as turn_budget, but its last turn says terminated"


def test_a_sample_is_the_same_for_the_same_key():
    assert sample_of(10, 3, "a") == sample_of(10, 3, "a")
    assert len(set(sample_of(1000, 5, "a"))) == 5
    assert sample_of(3, 5, "a") == [0, 1, 2]
    assert sample_of(1000, 5, "a") != sample_of(1000, 5, "b")
