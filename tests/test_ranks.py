"""Rounds on several ranks, in real processes that speak through gloo."""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness import ranks
from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.ledger.ledger import Ledger
from harness.ledger.verify import verify
from harness.policies.model import Model
from harness.prefix_tree import Tree, idle, share
from harness.round import Seed
from harness.store import Store
from harness.world import World, packed, unpacked

ROOT = Path(__file__).resolve().parents[1]
STAGES = (0, 1, 2, 3)
ROUND = ("+round=quickstart", "rounds=2", "sampler.problems=5", "rollout.attempts=8",
         "inference.decode_rows=8")  # fmt: skip
"""Five problems on two ranks: shares are uneven; a problem's attempts are decoded together."""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PATIENCE = 500
"""Seconds, on a machine that does much else."""
FAULTY = """
from dataclasses import dataclass
import os
from harness.update.objectives.ppo import PPO

@dataclass(frozen=True, kw_only=True)
class Faulty(PPO):
    def check(self, G):
        if os.environ.get("RANK") == "1":
            raise RuntimeError("the second rank has its own troubles")
"""


def command(folder, *words, before=(), package=("-m", "harness"), **more):
    """A process of `python -m harness`, one thread a rank."""
    # what rounds within this process have left: the child is no rank of theirs
    left = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    env = {k: v for k, v in os.environ.items() if k not in left}
    path = os.pathsep.join([str(ROOT), str(folder)])
    env |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", **more}
    return subprocess.Popen(
        [sys.executable, *before, *package, *words], cwd=folder, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(folder, *words, code=0, **more):
    process = command(folder, *words, **more)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        # a launcher takes its ranks with it
        process.terminate()
    assert process.returncode == code, err[-2000:]
    return SimpleNamespace(out=out, err=err)


LONG = (ROUND[0], "ranks=2", "lineage.name=long", "rollout.attempts=256")


def rolling_out(folder):
    """Two ranks of the lineage `long`, in their second rollout, which takes seconds."""
    process = command(folder, *LONG, "rounds=100000")
    for line in process.stdout:
        if line.startswith("   0  reward"):
            break
    time.sleep(1)
    return process


def stage(n):
    return f"update.deepspeed.zero_optimization.stage={n}"


def heads(folder, experiment):
    """The entries of each lineage of an experiment, by ZeRO stage."""
    ledger = Ledger.open(f"sqlite:///{folder}/mlflow.db", experiment, make=False)
    found = {}
    for lineage in ledger.lineages():
        entries = list(lineage.walk())
        config = entries[1].document.sealed["config"]
        found[config["update"]["deepspeed"]["zero_optimization"]["stage"]] = entries
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every stage twice on two ranks, and without shards on one."""
    folder = tmp_path_factory.mktemp("ranks")
    many = f"update.deepspeed.zero_optimization.stage={','.join(map(str, STAGES))}"
    run(folder, "-m", *ROUND, "ledger.experiment=one,two", many, before=TORCHRUN)
    run(folder, *ROUND, stage(0), "ledger.experiment=alone")
    return folder


def test_the_same_command_on_as_many_ranks_gives_the_same_identities(folder):
    one, two = heads(folder, "one"), heads(folder, "two")
    assert set(one) == set(STAGES)
    for key, entries in one.items():
        assert len(entries) == 3
        assert [e.identity for e in entries] == [e.identity for e in two[key]]


def test_ranks_change_the_version_of_U_and_iota_but_no_seed_and_no_lineage(folder):
    two, one = heads(folder, "one")[0], heads(folder, "alone")[0]
    assert two[0].identity == one[0].identity
    a, b = two[1].document.exact, one[1].document.exact
    assert (a["omega"], a["X"], a["nu"]["a"]) == (b["omega"], b["X"], b["nu"]["a"])
    assert a["nu"]["iota"] != b["nu"]["iota"]
    assert a["v"]["U"]["name"] == b["v"]["U"]["name"]
    assert a["v"]["U"]["settings"] != b["v"]["U"]["settings"]
    assert {n: a["v"][n] for n in "SRFCA"} == {n: b["v"][n] for n in "SRFCA"}


def test_with_the_same_decode_batches_episodes_feedback_and_credit_are_those_of_one_rank(folder):
    two, one = heads(folder, "one")[0], heads(folder, "alone")[0]
    a, b = two[1].document.exact, one[1].document.exact
    for what in ("X", "Z", "F", "G", "d"):
        assert a[what] == b[what], what
    # an update pads other batches
    padded = {"tokens/trained", "tokens/scored", "flops/update"}
    for name in set(a["c"]) - padded:
        assert a["c"][name] == b["c"][name], name


def test_an_update_by_two_ranks_is_that_of_one_to_rounding(folder):
    store = Store(str(folder / "harness-cas"))
    two, one = (
        store.get(Model, heads(folder, name)[0][2].document.resulting["model"])
        for name in ("one", "alone")
    )
    for name, tensor in two.tensors.items():
        # Adam's first steps are signs of gradients: where one is zero, rounding decides
        assert (tensor - one.tensors[name]).abs().mean() < 1e-6, name


def test_states_of_two_ranks_are_taken_up_by_one_and_back(folder):
    words = (ROUND[0], *ROUND[2:], stage(3), "ledger.experiment=one")
    first = heads(folder, "one")[3]
    alone = run(folder, *words, "rounds=3", "ranks=1")
    assert "going on after round 1" in alone.out
    run(folder, *words, "rounds=4", before=TORCHRUN)
    entries = heads(folder, "one")[3]
    assert [e.identity for e in entries[:3]] == [e.identity for e in first]
    for before, after in itertools.pairwise(entries[1:]):
        assert after.document.exact["starting"] == before.document.resulting
    ledger = Ledger.open(f"sqlite:///{folder}/mlflow.db", "one", make=False)
    for lineage in ledger.lineages():
        report = verify(lineage, Store(str(folder / "harness-cas")))
        assert not report.problems


def test_an_adapter_on_two_ranks_that_share_out_its_base(tmp_path):
    """ZeRO 3 with LoRA: stopped or not the same, rejects included, and one rank takes it up."""
    words = (ROUND[0], *ROUND[2:], stage(3), "model=lora", "model.targets=[all-linear]",
             "lineage.name=a", "update.gates.kl.budget=1e-5")  # fmt: skip
    run(tmp_path, *words, "rounds=3", "ledger.experiment=whole", before=TORCHRUN)
    for n in (1, 3):
        run(tmp_path, *words, f"rounds={n}", "ledger.experiment=parts", before=TORCHRUN)
    whole, parts = (heads(tmp_path, name)[3] for name in ("whole", "parts"))
    assert [e.identity for e in whole] == [e.identity for e in parts]
    decided = [e.document.exact["d"] for e in whole[1:]]
    assert "reject" in decided
    run(tmp_path, *words, "rounds=4", "ranks=1", "ledger.experiment=whole")
    last = heads(tmp_path, "whole")[3][-1].document
    assert last.exact["starting"] == whole[-1].document.resulting
    store = Store(str(tmp_path / "harness-cas"))
    model = store.get(Model, last.resulting["model"], check=True)
    assert model.base.id == model.meta["base"]
    assert all(".lora_" in name for name in model.tensors)


def test_ranks_evaluate_a_proposal_together(tmp_path):
    words = ("+round=gated", "rounds=2", "sampler.problems=4", "rollout.attempts=4", stage(3),
             "update.gates.improvement.tasks=32", "update.gates.improvement.batch=16",
             "inference.decode_rows=4")  # fmt: skip
    run(tmp_path, "-m", *words, "ledger.experiment=one,two", "ranks=2", before=TORCHRUN)
    one, two = heads(tmp_path, "one")[3], heads(tmp_path, "two")[3]
    assert [e.identity for e in one] == [e.identity for e in two]
    report = one[1].document.sealed["report"]
    found = next(g["numbers"] for g in report["gates"] if g["name"] == "improvement")
    assert found["tasks"] == 32
    assert report["evaluation"]["sampled"] >= 64
    # what M earned on those tasks is what it earns on one rank: the episodes are the same
    run(tmp_path, *words, "rounds=1", "ledger.experiment=alone")
    alone = heads(tmp_path, "alone")[3][1].document.sealed["report"]
    same = next(g["numbers"] for g in alone["gates"] if g["name"] == "improvement")
    assert same["before"] == found["before"]


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_rank_fails_the_round_and_leaves_the_lineage(tmp_path, victim):
    process = rolling_out(tmp_path)
    os.kill(rank_of(process.pid, victim), signal.SIGKILL)
    began = time.monotonic()
    _, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 60
    assert process.returncode == 1
    assert err == f"error: rank {victim} was killed (SIGKILL), and the round with it\n"
    lineage = Ledger.open(f"sqlite:///{tmp_path}/mlflow.db", make=False).find("long")
    (attempt,) = lineage.attempts()
    assert (attempt.state, attempt.status) == ("failed", "FAILED")
    assert attempt.cost["seconds/total"] > 0
    assert attempt.n == lineage.head().n + 1 == 1
    assert not verify(lineage).problems
    if victim == 1:
        # no state was stored since the first: ranks compute it again, and go on
        assert "going on after round 0" in run(tmp_path, *LONG, "rounds=2").out


def rank_of(launcher, rank):
    """The process of a rank, among the launcher's children."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            environ = (folder / "environ").read_bytes().split(b"\0")
            if parent == launcher and f"RANK={rank}".encode() in environ:
                return int(folder.name)
    raise AssertionError(f"rank {rank} of {launcher} is not running")


def test_the_error_of_one_rank_is_said_once_and_ends_the_round(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    said = run(
        tmp_path, *ROUND, "ranks=2", "packages=[faulty]", "lineage.name=faulty",
        "update.objective._target_=faulty.Faulty", code=1,
    )  # fmt: skip
    assert said.err == "error: rank 1: RuntimeError: the second rank has its own troubles\n"
    lineage = Ledger.open(f"sqlite:///{tmp_path}/mlflow.db", make=False).find("faulty")
    (attempt,) = lineage.attempts()
    assert attempt.state == "failed"
    assert attempt.cost["tokens/sampled"] > 0
    assert lineage.head().n == -1


SMALL = ("+round=quickstart", "rounds=1", "sampler.problems=3", "rollout.attempts=4")


def head(folder, name):
    """The identity of a lineage's head."""
    ledger = Ledger.open(f"sqlite:///{folder}/mlflow.db", make=False)
    return ledger.find(name).head().identity


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_deepspeed_and_slurm_start_the_same_round(tmp_path):
    run(tmp_path, *SMALL, "ranks=2", "lineage.name=own")
    hosts = tmp_path / "hostfile"
    hosts.write_text("localhost slots=2\n")
    launcher = (
        "-m", "deepspeed.launcher.runner", "--hostfile", str(hosts), "--no_ssh_check",
        "--master_addr", "127.0.0.1", "--master_port", str(port()), "--module", "harness",
    )  # fmt: skip
    cpu = {} if torch.cuda.is_available() else {"DS_ACCELERATOR": "cpu"}
    run(tmp_path, *SMALL, "lineage.name=deepspeed", before=launcher, package=(), **cpu)
    # as srun sets them, in a step of a job on this host
    step = {
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost",
    }  # fmt: skip
    tasks = [
        command(tmp_path, *SMALL, "lineage.name=slurm", SLURM_PROCID=n, SLURM_LOCALID=n, **step)
        for n in "01"
    ]
    try:
        for task in tasks:
            _, err = task.communicate(timeout=PATIENCE)
            assert task.returncode == 0, err[-2000:]
    finally:
        # a task that waits for one that failed would outlive this test
        for task in tasks:
            task.kill()
            task.communicate()
    assert head(tmp_path, "own") == head(tmp_path, "deepspeed") == head(tmp_path, "slurm")


def test_ranks_that_are_told_to_end_are_killed_and_have_not_failed(tmp_path):
    process = rolling_out(tmp_path)
    process.terminate()
    began = time.monotonic()
    process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < 60
    lineage = Ledger.open(f"sqlite:///{tmp_path}/mlflow.db", make=False).find("long")
    (attempt,) = lineage.attempts()
    assert (attempt.state, attempt.status) == ("killed", "KILLED")
    assert not verify(lineage).problems


def test_other_ranks_than_were_started_are_refused(tmp_path):
    world = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    said = run(tmp_path, *ROUND, "ranks=3", code=2, **world)
    assert said.err == "error: ranks is 3, but 2 were started; give ranks=2 or leave it out\n"
    assert list(tmp_path.iterdir()) == []


# ---- in this process


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, 4),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, 2),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}, None),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "8",
          "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "gpu[03-07]"}, 2),
    ],
)  # fmt: skip
def test_what_was_started_is_found_in_the_environment(monkeypatch, variables, size):
    environment = dict(variables)
    monkeypatch.setattr(os, "environ", environment)
    assert ranks.started.__wrapped__() == size
    if size is not None:
        assert environment["WORLD_SIZE"] == str(size)
        assert environment["RANK"] == "1"
    if "SLURM_STEP_NODELIST" in variables:
        assert environment["MASTER_ADDR"] == "gpu03"
        assert environment["MASTER_PORT"] == "15007"


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("node7", "node7"), ("a,b", "a"), ("gpu[03-07,12]", "gpu03"), ("", "127.0.0.1")],
)
def test_the_first_host_of_a_list(hosts, first):
    assert ranks.first_host(hosts) == first


def test_the_cause_of_a_failure_comes_before_its_consequences(tmp_path):
    told = [(0, "lost", True, 1.0, 1), (1, "cause", False, 2.0, 2)]
    for rank, text, lost, at, code in told:
        fault = {"rank": rank, "text": text, "lost": lost, "time": at, "code": code}
        (tmp_path / f"{rank}.json").write_text(json.dumps(fault))
    gone = {0: SimpleNamespace(exitcode=1), 1: SimpleNamespace(exitcode=2)}
    assert ranks.verdict(tmp_path, gone) == ("rank 1: cause", 2)
    (tmp_path / "1.json").unlink()
    killed = {0: SimpleNamespace(exitcode=1), 1: SimpleNamespace(exitcode=-9)}
    said = "rank 1 was killed (SIGKILL), and the round with it"
    assert ranks.verdict(tmp_path, killed) == (said, 1)


def tree(tokens):
    ids = np.arange(tokens)
    return Tree(ids, ids, ((0, tokens, -1),), np.array([1]), np.array([0]))


@pytest.mark.parametrize("sizes", [[], [5], [1, 1, 1], [9, 1, 1, 1], [1, 1, 1, 9], [3] * 7])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_tree_is_one_ranks(sizes, size):
    trees = [tree(n) for n in sizes]
    shares = [share(trees, rank, size) for rank in range(size)]
    assert [id(t) for part in shares for t in part] == [id(t) for t in trees]


def test_an_idle_rank_computes_one_token():
    batch = idle(3)
    assert batch.tokens == 1
    assert batch.row_T.tolist() == [3]
    assert batch.node_R.tolist() == [0]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_shares_cover_what_there_is_in_order(count):
    for size in (1, 2, 3):
        parts = [World(rank, size).share(count) for rank in range(size)]
        assert [i for part in parts for i in part] == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_values_cross_between_ranks_unchanged():
    arrays = {"rewards": np.array([1.5, -0.0, np.nan])}
    for cls in (Instance, Trajectories, Scores, Lesson):
        value = cls({"a": [0.1, "ω"], "b": None}, arrays)
        assert unpacked(cls, packed(value)).id == value.id


def test_a_rollout_of_other_ranks_than_are_running_is_refused():
    from harness.rollout.sampled import Sampled

    policy = SimpleNamespace(inference=SimpleNamespace(ranks=2))
    with pytest.raises(ValueError, match="that of 2 ranks, and 1 are running; give ranks=2"):
        Sampled()(policy, None)(Instance({"problems": []}), Seed("0" * 32))
