"""Ten planted changes, and the first divergence that is named for each."""

import csv
import dataclasses
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.exactness.replay import STAGES, replay
from harness.round import Decision


def stages(found):
    return {row.stage: row.verdict for row in found.rows}


def first(found):
    """The first stage that differs, and its divergence."""
    assert found.first is not None
    return found.first.stage, found.first.divergence


def test_a_round_replays_bit_for_bit(opened):
    found = replay(opened(1))
    assert found.good
    assert stages(found) == dict.fromkeys("ωSRFCUAr", "same")
    assert found.open == []
    assert found.resulting.exact() == opened(1).exact["resulting"]


def test_the_fixture_has_a_rejected_round_and_it_replays(opened):
    decisions = [opened(n).exact["d"] for n in range(4)]
    assert set(decisions) == {"accept", "reject"}
    n = decisions.index("reject")
    found = replay(opened(n))
    assert found.good
    assert found.resulting.exact() == opened(n).exact["starting"]


@pytest.mark.parametrize("stage", STAGES)
def test_one_stage_replays_from_its_recorded_inputs(opened, stage):
    found = replay(opened(2), stage)
    assert stages(found) == {stage: "same"}


def test_planted_in_the_sampler(opened, monkeypatch):
    from harness.tasks import product

    cls = product.Product

    def shifted(self, seed):
        drawn = [self.task.draw(seed.fold("problem", p + (p >= 3))) for p in range(self.problems)]
        return product.Instance({"problems": drawn})

    monkeypatch.setattr(cls, "__call__", shifted)
    found = replay(opened(1))
    stage, where = first(found)
    old = opened(1).value("S").problems
    p = next(p for p in range(3, 7) if old[p] != old[p + 1])
    assert (stage, where.place) == ("S", f"problem {p}")
    assert [row.stage for row in found.rows if not row.good] == ["S"]
    assert f".problem.{p}" in where.more["seed"]


def test_planted_in_the_temperature_of_the_engine(opened, monkeypatch):
    from harness.policies import resident

    real = resident.sample

    def hot(*args, temperature, **kwargs):
        return real(*args, temperature=temperature * 1.05, **kwargs)

    monkeypatch.setattr(resident, "sample", hot)
    found = replay(opened(1))
    stage, where = first(found)
    assert stage == "R"
    assert where.place.startswith("episode 0 (problem 0, attempt 0), turn 0, token 0")
    assert where.what in ("token", "log-probability")
    assert "policy draw 0" in where.more["seed"]
    assert [row.stage for row in found.rows if not row.good] == ["R"]


def test_planted_in_one_token_of_one_episode(opened, monkeypatch):
    from harness.rollout import sampled

    Z = opened(1).value("R")
    turns = np.bincount(Z.arrays["turn_episode"], minlength=len(Z.stop_B))
    b = int(np.flatnonzero(turns >= 2)[0])
    p, g = divmod(b, Z.attempts)
    real = sampled.Episode.act

    def act(self, token, logprob, *rest):
        if self.problem == p and self.key == key and self.sampled == 1:
            logprob = float(np.nextafter(np.float32(logprob), np.float32(-100)))
        real(self, token, logprob, *rest)

    key = opened(1).seeds.roll.fold("episode", p, g).fold("policy").key
    monkeypatch.setattr(sampled.Episode, "act", act)
    stage, where = first(replay(opened(1), "R"))
    assert stage == "R"
    assert where.place == f"episode {b} (problem {p}, attempt {g}), turn 1, token 0"
    assert where.what == "log-probability"
    assert where.recorded != where.replayed
    assert where.more["tokens"][0] == where.more["tokens"][1]
    assert where.more["seed"].endswith(f".episode.{p}.{g}.policy draw 1")


def test_planted_in_the_environment(opened, monkeypatch):
    from harness.environments import vault

    real = vault.Vault._outcome

    def generous(self, room, word):
        after, text, reward, done = real(self, room, word)
        return after, text, reward + 0.125 * (word == "look"), done

    monkeypatch.setattr(vault.Vault, "_outcome", generous)
    stage, where = first(replay(opened(1)))
    Z = opened(1).value("R")
    looked = [
        (b, n)
        for b, e in enumerate(Z.episodes)
        for n, turn in enumerate(e["turns"])
        if turn["action"]["text"] == "look"
    ]
    b, n = looked[0]
    assert stage == "R"
    assert where.place.startswith(f"episode {b} ")
    assert where.place.endswith(f"turn {n}")
    assert where.what in ("event.reward", "reward")
    assert where.replayed == where.recorded + 0.125


def test_planted_in_the_serializer(opened, monkeypatch):
    from harness.policies.serializers import plain

    real = plain.Plain.extend
    monkeypatch.setattr(plain.Plain, "extend", lambda *args: real(*args)[:-1])
    stage, where = first(replay(opened(1), "R"))
    assert stage == "R"
    # the header of the second turn is missing: the observation before it is the first to differ
    assert "turn 1" in where.place


def test_planted_in_the_feedback(opened, monkeypatch):
    from harness.feedback import verified

    real = verified.Verified.__call__

    def bonus(self, X, Z, seed):
        F = real(self, X, Z, seed)
        rewards = F.rewards_B.copy()
        rewards[5] += 1
        return F.replace({}, rewards=rewards)

    monkeypatch.setattr(verified.Verified, "__call__", bonus)
    found = replay(opened(1))
    stage, where = first(found)
    assert (stage, where.place, where.what) == ("F", "episode 5", "rewards")
    assert where.replayed == where.recorded + 1
    assert [row.stage for row in found.rows if not row.good] == ["F"]


def test_planted_in_the_credit(opened, monkeypatch):
    from harness.credit import group

    monkeypatch.setattr(group, "group_advantages", lambda rewards, *rest: rewards - rewards.mean())
    found = replay(opened(1))
    stage, where = first(found)
    assert (stage, where.what) == ("C", "advantages")
    assert where.place.startswith("episode 0, position ")
    assert [row.stage for row in found.rows if not row.good] == ["C"]


def test_planted_in_the_learning_rate(opened, monkeypatch):
    from harness.update import schedule

    real = schedule.Schedule.at
    monkeypatch.setattr(schedule.Schedule, "at", lambda self, *rest: real(self, *rest) * 1.01)
    found = replay(opened(0))
    stage, where = first(found)
    assert stage == "U"
    assert "update/lr" in where.more["metrics that differ"]
    assert where.more["tensor"].startswith("model ")
    assert [row.stage for row in found.rows if not row.good] == ["U"]


def test_planted_in_a_gate(opened, monkeypatch):
    from harness.update.gates import grad_norm

    real = grad_norm.GradNorm.__call__

    def strict(self, report):
        return {**real(self, report), "passed": False}

    monkeypatch.setattr(grad_norm.GradNorm, "__call__", strict)
    n = next(n for n in range(4) if opened(n).exact["d"] == "accept")
    stage, where = first(replay(opened(n)))
    assert (stage, where.place) == ("U", "the gates")
    assert where.recorded["grad_norm"]
    assert not where.replayed["grad_norm"]
    assert where.more["decision"] == Decision.REJECT


def test_planted_in_the_optimizer_of_the_library(opened, monkeypatch):
    """A setting of torch's AdamW that no map sets: its gradient is right, what it steps is not."""
    real = torch.optim.AdamW.step

    def damped(self, *args, **kwargs):
        kept = [group["eps"] for group in self.param_groups]
        for group in self.param_groups:
            group["eps"] = 1e-4
        done = real(self, *args, **kwargs)
        # the engine outlives this test
        for group, eps in zip(self.param_groups, kept, strict=True):
            group["eps"] = eps
        return done

    monkeypatch.setattr(torch.optim.AdamW, "step", damped)
    stage, where = first(replay(opened(0)))
    assert stage == "U"
    assert where.more["tensor"].startswith("model ")
    assert "grad_norm" not in where.more["metrics that differ"]


def test_planted_in_the_accounting(opened, monkeypatch):
    from harness.accounting import standard

    real = standard.Standard.computed

    def dear(self, *args):
        found = real(self, *args)
        return {**found, "tokens/observed": found["tokens/observed"] + 1}

    monkeypatch.setattr(standard.Standard, "computed", dear)
    found = replay(opened(1))
    stage, where = first(found)
    assert (stage, where.what) == ("A", "tokens/observed")
    assert where.replayed == where.recorded + 1
    assert [row.stage for row in found.rows if not row.good] == ["A"]


def test_planted_in_the_attention_of_the_library(opened, monkeypatch):
    """A kernel of torch that gives other bits: the first token's log-probability shows it."""
    real = torch.nn.functional.scaled_dot_product_attention

    def coarse(query, *args, **kwargs):
        return real((query * 1.0001), *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", coarse)
    stage, where = first(replay(opened(1)))
    assert stage == "R"
    assert where.place.endswith("turn 0, token 0")


def test_planted_in_the_seed_law(opened, monkeypatch):
    from harness.seeds import independent

    real = independent.Independent.draw
    monkeypatch.setattr(
        independent.Independent, "draw", lambda self, root, arm, n: real(self, root, arm, n // 2)
    )
    found = replay(opened(1))
    stage, where = first(found)
    assert (stage, where.place) == ("ω", "ω_task")
    # the recorded seeds are what is run
    assert [row.stage for row in found.rows if not row.good] == ["ω"]


def test_a_map_that_raises_has_diverged(opened, monkeypatch):
    from harness.feedback import verified

    def broken(self, X, Z, seed):
        raise RuntimeError("no judge")

    monkeypatch.setattr(verified.Verified, "__call__", broken)
    found = replay(opened(1))
    assert found.first.verdict == "raises"
    assert found.first.reason == "RuntimeError: no judge"
    assert [row.stage for row in found.rows if not row.good] == ["F"]


def test_a_bumped_version_is_in_the_record_and_named(opened, monkeypatch):
    from harness.credit import group
    from harness.exactness.changes import changes

    monkeypatch.setattr(group.Group, "version", "2")
    found = replay(opened(1))
    assert [row.stage for row in found.rows if not row.good] == ["r"]
    assert found.first.divergence.what == "v"
    assert "C was credit.group@1, is credit.group@2" in changes(opened(1))


def test_a_round_with_inputs_from_outside_is_open(opened, monkeypatch):
    recorded = opened(1)
    real = type(recorded).value

    def value(self, stage):
        found = real(self, stage)
        return found.replace({"exogenous": [{"timeout": 3}]}) if stage == "R" else found

    monkeypatch.setattr(type(recorded), "value", value)
    found = replay(recorded)
    assert found.open == [{"timeout": 3}]
    assert stages(found)["R"] == "open"
    assert stages(found)["F"] == "same"


def test_dropped_bytes_cannot_be_replayed_and_are_named(opened, recorded_ledger, tmp_path):
    import shutil

    from harness.store import Store

    recorded = opened(1)
    shutil.copytree(recorded_ledger[2].root, tmp_path / "cas")
    store = Store(str(tmp_path / "cas"))
    store.delete("trajectories", recorded.exact["Z"])
    session = dataclasses.replace(recorded.session, store=store)
    moved = dataclasses.replace(recorded, session=session)
    assert replay(moved).good  # the rollout itself gives it again
    found = replay(moved, "C")
    assert stages(found) == {"C": "cannot"}
    assert "the recorded Z of round 1 is not in the store" in found.first.reason


@pytest.mark.slow
def test_two_hundred_rounds_replay_in_fresh_processes(tmp_path, smollm2_folder):
    """The soak: rounds of every shipped example and several settings, replayed by the command."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}

    def call(*words):
        command = [sys.executable, "-P", "-m", "harness", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, text=True,
                              stdout=subprocess.PIPE)  # fmt: skip
        return done.returncode, done.stdout

    small = ["+round=quickstart", "rounds=40", "rollout.attempts=4"]
    arms = {
        "quickstart": ["+round=quickstart"],
        "rloo": [*small, "credit=rloo", "memo=off"],
        "top": [*small, "inference.top_k=8", "seeds.root=7"],
        "pairs": [*small, "seeds=antithetic", "rounds=42"],
        "gated": ["+round=gated", "rounds=10"],
        "smollm2": ["+round=smollm2_arithmetic", "rounds=20"],
    }
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    origin = [commit.stdout.strip()[:12], f"{platform.machine()} {os.cpu_count()} cores"]
    target = root / "sweeps" / "results" / "replays.csv"
    with target.open("w", newline="", buffering=1) as file:
        table = csv.writer(file)
        table.writerow(["lineage", "rounds", "same", "open", "seconds", "commit", "machine"])
        total = 0
        for name, words in arms.items():
            assert call(*words, f"lineage.name={name}")[0] == 0
            began = time.monotonic()
            code, out = call("replay", name, "--all", "--json")
            found = [json.loads(line) for line in out.splitlines()]
            same = sum(all(r["verdict"] == "same" for r in f["stages"]) for f in found)
            opens = sum(any(r["verdict"] == "open" for r in f["stages"]) for f in found)
            seconds = f"{time.monotonic() - began:.1f}"
            table.writerow([name, len(found), same, opens, seconds, *origin])
            assert (code, same) == (0, len(found))
            total += same
    assert total >= 200
