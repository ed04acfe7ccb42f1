"""Rounds that read the clock are open: replayed on what they recorded, and called open."""

import json
import re

import pytest

SMALL = ("+round=quickstart", "rollout.attempts=4", "lineage.name=a", "rounds=2")


def verdicts(said):
    (found,) = [json.loads(line) for line in said.out.splitlines()]
    return {row["stage"]: row["verdict"] for row in found["stages"]}


def test_an_environment_that_hangs_ends_its_episode(project, here, hanging):
    with hanging():
        said = here(project, *SMALL, "rollout.timeout=0.1", "sampler.problems=2")
        assert (said.code, said.err) == (0, "")
    assert re.search(r"rollout/stop/timeout +0\.[1-9]", here(project, "show", "a@0").out)
    assert here(project, "verify", "--deep").code == 0
    # the clock is read from the record: no step hangs any more, and the round is the same
    replayed = here(project, "replay", "a@0", "--json")
    assert replayed.code == 0
    assert verdicts(replayed) == {"ω": "same", "S": "same", "R": "open"} | dict.fromkeys(
        "FCUAr", "same"
    )
    assert "time-out" in replayed.out
    whole = here(project, "replay", "--all", "a")
    assert whole.code == 0
    assert "2 of them open" in whole.out


def test_a_reward_function_that_hangs_leaves_its_episode_unscorable(project, here, tmp_path):
    file = tmp_path / "late.py"
    file.write_text(
        "import time\n\ndef late(completion, episode, seed):\n"
        "    if int(seed[0], 16) < 4:\n        time.sleep(20)\n    return len(completion) % 3\n"
    )
    said = here(project, *SMALL, "feedback=function", f"feedback.path={file}:late",
                "feedback.timeout=0.05", "sampler.problems=2", "rounds=1")  # fmt: skip
    assert (said.code, said.err) == (0, "")
    replayed = here(project, "replay", "a@0", "--json")
    assert replayed.code == 0
    assert verdicts(replayed)["F"] == "open"
    assert verdicts(replayed)["C"] == "same"


@pytest.mark.parametrize("words", [("rollout.timeout=0",), ("rollout.timeout=-3",)])
def test_a_limit_that_is_none_is_refused(project, here, words):
    said = here(project, *SMALL, *words)
    assert said.code == 2
    assert "it is a number of seconds above 0, or null" in said.err
