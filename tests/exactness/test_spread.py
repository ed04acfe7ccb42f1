"""A record of two ranks is run again by two, whoever asks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("+round=quickstart", "rounds=2", "ranks=2", "sampler.problems=3", "rollout.attempts=4",
         "lineage.name=two", "store.snapshot_every=1")  # fmt: skip
ZERO = "update.deepspeed.zero_optimization.stage=3"


def command(folder, *words, code=0):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    said = subprocess.run(
        [sys.executable, "-m", "harness", *words], cwd=folder, env=env, text=True,
        capture_output=True, timeout=500,
    )  # fmt: skip
    assert said.returncode == code, said.stderr[-2000:]
    return said


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spread")
    command(folder, *WORDS, ZERO)
    return folder


def test_a_record_of_two_ranks_replays_on_two(folder):
    rows = [json.loads(s) for s in command(folder, "replay", "two@1", "--json").stdout.splitlines()]
    (row,) = rows
    assert row["same"]
    assert {s["stage"]: s["verdict"] for s in row["stages"]} == dict.fromkeys("ωSRFCUAr", "same")


@pytest.mark.slow
def test_a_chain_of_two_ranks_replays_record_by_record(folder):
    said = command(folder, "replay", "two", "--all", "--stage", "U")
    assert "two: 2 of 2 rounds came out the same" in said.stdout


def test_a_what_if_of_two_ranks_runs_and_branches_on_two(folder):
    said = command(folder, "whatif", "two@1", "update.lr=3e-6", "--json", "--branch", "slow")
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["kept"] == list("SRFC")
    assert found["whatif"]["G"] == found["recorded"]["G"]
    assert found["whatif"]["proposed"] != found["recorded"]["proposed"]
    assert found["branch"]["name"] == "slow"
    assert json.loads(command(folder, "replay", "two@slow@1", "--json").stdout)["same"]


def test_an_answer_of_no_is_no_failure_of_a_rank(folder, tmp_path):
    # another source of luck: the record's seeds are kept, but the law no longer draws them
    said = command(folder, "replay", "two@7", code=2)
    assert "two" in said.stderr
    assert "rank" not in said.stderr


def test_laws_are_tested_on_one_rank(folder):
    said = command(
        folder, "laws", *WORDS[:1], "ranks=2", "--episodes", "512", "--draws", "256", "--json"
    )
    assert json.loads(said.stdout)["hold"]
