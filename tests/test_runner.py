"""A lineage goes on from wherever it was left."""

import contextlib
import csv
import dataclasses
import errno
import json
import os
import platform
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# states between snapshots are recomputed, and gates reject some rounds
SMALL = ("+round=quickstart", "rollout.attempts=4", "store.snapshot_every=3",
         "update.gates.kl.budget=0.03", "lineage.name=small")  # fmt: skip
ROUNDS = 6


def identities(here, folder, *words):
    return [row["id"] for row in here(folder, "log", "--json", *words).rows]


@pytest.fixture(scope="session")
def undisturbed(here, empty_ledger, tmp_path_factory):
    """A folder with a lineage of six rounds that ran at a stretch."""
    folder = tmp_path_factory.mktemp("undisturbed")
    shutil.copy(empty_ledger, folder / "mlflow.db")
    said = here(folder, *SMALL, f"rounds={ROUNDS}")
    assert (said.code, said.err) == (0, "")
    (folder / "said").write_text(said.out)
    return folder


@pytest.fixture
def copied(undisturbed, here, project):
    """The same lineage, to be gone on with: run again, since records name their folder."""
    said = here(project, *SMALL, "rounds=2")
    assert said.code == 0
    return project


def test_every_round_is_a_line_and_the_end_says_where_to_look(undisturbed, here):
    lines = (undisturbed / "said").read_text().splitlines()
    rows = here(undisturbed, "log", "--json").rows
    rounds = [line for line in lines if re.match(r" +\d+  reward", line)]
    assert [line.split()[-1] for line in rounds] == [row["id"][7:19] for row in rows]
    assert [("accept" in line) for line in rounds] == [row["decision"] == "accept" for row in rows]
    assert {row["decision"] for row in rows} == {"accept", "reject"}
    assert "reject (kl)" in "".join(rounds)
    closing = "\n".join(lines[-5:])
    assert f"small, {ROUNDS} rounds" in closing
    assert rows[-1]["id"] in closing
    assert "mlflow ui" in closing
    assert "\x1b" not in "".join(lines)


def test_where_nothing_is_left_to_do_it_says_so(undisturbed, here):
    said = here(undisturbed, *SMALL, f"rounds={ROUNDS}")
    assert said.code == 0
    assert said.out.startswith(f"nothing to do: small has its {ROUNDS} rounds; raise `rounds`")


def test_raising_rounds_goes_on_as_if_it_had_never_stopped(copied, undisturbed, here):
    said = here(copied, *SMALL, f"rounds={ROUNDS}")
    assert said.code == 0
    assert "going on after round 1" in said.out
    assert identities(here, copied) == identities(here, undisturbed)
    assert here(copied, "verify").code == 0


def test_a_missing_state_is_recomputed_and_a_branch_goes_its_own_way(undisturbed, here):
    fork = ("lineage.parent=small@3", "lineage.branch=side")
    said = here(undisturbed, *SMALL, "credit=rloo", "rounds=6", *fork)
    assert (said.code, said.err) == (0, "")
    assert "small, branch side: rounds to 6" in said.out
    assert "from round 4 on, credit is credit.rloo@1; it was credit.group@1" in said.out
    main, side = identities(here, undisturbed), identities(here, undisturbed, "--branch", "side")
    assert side[:4] == main[:4]
    assert len(side) == 6
    assert side[4:] != main[4:]
    again = here(undisturbed, *SMALL, "credit=rloo", "rounds=6", *fork)
    assert again.out.startswith("nothing to do")
    assert here(undisturbed, "verify").code == 0


def test_a_map_may_change_within_a_lineage_and_is_shown(copied, here):
    said = here(copied, *SMALL, "credit=rloo", "update.lr=3e-4", "rounds=3")
    assert said.code == 0
    assert "from round 2 on, credit is credit.rloo@1; it was credit.group@1" in said.out
    assert "from round 2 on, update (update.deepspeed@1) has other settings" in said.out
    names = [row["versions"]["C"]["name"] for row in here(copied, "log", "--json").rows]
    assert names == ["credit.group@1", "credit.group@1", "credit.rloo@1"]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("seeds.root=5", "the lineage 'small' began with seeds.root '0', not '5'"),
        ("seeds=coupled", "the lineage 'small' began with seed law "),
        ("model.seed=1", "the lineage 'small' began with another state"),
        ("lineage.branch=other", "the branch 'other' does not exist yet; say what it forks from"),
        ("lineage.parent=nobody", "there is no lineage 'nobody'; there are ['small']"),
        ("lineage.parent=small@99", "has no round 99 on branch 'main'; its head is round 5"),
    ],
)
def test_what_a_lineage_keeps_cannot_change(undisturbed, here, word, sentence):
    before = identities(here, undisturbed)
    said = here(undisturbed, *SMALL, "rounds=9", word)
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert identities(here, undisturbed) == before


def test_secrets_of_the_environment_and_of_the_uri_reach_no_record(project, here, monkeypatch):
    secret = "k7" * 12
    for name in ("AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "HF_TOKEN", "MY_PASSWORD"):
        monkeypatch.setenv(name, secret)
    uri = f"sqlite:///{project}/mlflow.db"
    assert here(project, *SMALL, "rounds=1", f"ledger.uri={uri}").code == 0
    files = [path for path in project.rglob("*") if path.is_file()]
    assert any(path.name == "record.json" for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    record = json.loads(here(project, "show", "@0", "--json").out)
    assert record["sealed"]["config"]["ledger"]["uri"] is None
    assert uri not in json.dumps(record)


def test_a_budget_stops_before_it_is_overdrawn(project, here):
    # 8 problems of 4 attempts of at most 16 tokens can cost 512
    said = here(project, *SMALL, "rounds=50", "budget.tokens.sampled=800")
    assert said.code == 0
    assert re.search(r"stopped before round \d+: tokens/sampled is at \d+ of 800, and a round can "
                     "cost up to 512", said.out)  # fmt: skip
    spent = sum(row["cost"]["tokens/sampled"] for row in here(project, "log", "--json").rows)
    assert 288 < spent <= 800
    again = here(project, *SMALL, "rounds=50", "budget.tokens.sampled=100")
    assert f"stopped before round {len(identities(here, project))}: tokens/sampled" in again.out


@pytest.mark.parametrize("name", ["tokens/prompt", "tokens/observed", "flops/rollout",
                                  "tokens/trained", "flops/update", "seconds/total"])  # fmt: skip
def test_a_round_that_would_overdraw_ends_as_an_attempt(name, undisturbed, project, here):
    # no round before it says what the first one costs
    cost = here(undisturbed, "log", "--json").rows[0]["cost"]
    limit = 0.01 if name == "seconds/total" else cost[name] * 0.75
    said = here(project, *SMALL, "rounds=50", f"budget.{name.replace('/', '.')}={limit}")
    assert said.code == 0
    assert f"stopped within round 0: {name} was at 0 of " in said.out
    assert here(project, "log", "--json").rows == []
    lost = here(project, "log")
    noted = re.findall(rf"{name} ([\d.,e+]+)", lost.out)
    assert "attempt at round 0 (failed" in lost.out
    if name != "seconds/total":
        assert all(float(x.replace(",", "")) <= limit for x in noted)
    assert here(project, "verify").code == 0


def test_a_round_goes_on_where_it_just_fits(undisturbed, project, here):
    cost = [row["cost"] for row in here(undisturbed, "log", "--json").rows]
    exact = [f"budget.{n.replace('/', '.')}={cost[0][n]}"
             for n in ("tokens/prompt", "tokens/observed", "flops/rollout")]  # fmt: skip
    said = here(project, *SMALL, "rounds=2", *exact)
    assert "stopped before round 1: " in said.out
    assert len(here(project, "log", "--json").rows) == 1


@pytest.mark.parametrize("share", [3, 1])
def test_an_environment_that_cannot_begin_is_data(share, project, here, monkeypatch):
    from harness.environments.vault import Vault

    reset = Vault.reset

    def broken(self, problem, seed):
        # it was there when the command was looked through
        if seed.hex != "0" * 32 and seed.key % share == 0:
            raise OSError("no room is free")
        return reset(self, problem, seed)

    monkeypatch.setattr(Vault, "reset", broken)
    said = here(project, *SMALL, "rounds=2")
    assert (said.code, said.err) == (0, "")
    shown = here(project, "show", identities(here, project)[1]).out
    assert "tool_failure" in shown
    assert here(project, "verify", "--deep").code == 0
    monkeypatch.undo()
    doubted = here(project, "verify", "--deep")
    assert doubted.code == 1
    assert "OSError: no room is free" in doubted.out


def test_an_environment_that_is_broken_from_the_start_is_refused(project, here, monkeypatch):
    from harness.environments.vault import Vault

    def broken(self, problem, seed):
        raise OSError("no room is free")

    monkeypatch.setattr(Vault, "reset", broken)
    said = here(project, *SMALL)
    assert said.code == 2
    assert said.err == (
        "error: the environment Vault cannot begin here (OSError: no room is free); bring up what "
        "it needs first\n"
    )
    assert "run a round first" in here(project, "log").err


def test_a_gate_that_evaluates_bills_it_and_replays(project, here):
    words = ("+round=gated", "rounds=2", "lineage.name=gated", "rollout.attempts=4",
             "update.gates.improvement.tasks=64")  # fmt: skip
    said = here(project, *words)
    assert (said.code, said.err) == (0, "")
    for row in here(project, "log", "--json").rows:
        shown = here(project, "show", f"gated@{row['n']}", "--json").rows[0]
        report = shown["sealed"]["report"]
        found = next(g for g in report["gates"] if g["name"] == "improvement")
        assert found["numbers"]["tasks"] == 64
        assert row["cost"]["tokens/sampled"] > report["evaluation"]["sampled"] >= 128
        assert here(project, "replay", f"gated@{row['n']}").code == 0
    assert here(project, "verify", "--deep").code == 0
    # 8 problems of 4 attempts, and 64 tasks twice, of 16 tokens at most
    poor = here(project, *words[:1], *words[2:], "rounds=9", "budget.tokens.sampled=2500")
    assert "can cost up to 2,560" in poor.out


def test_a_process_that_loses_its_round_says_so_and_is_billed(copied, here, monkeypatch):
    from harness import runner
    from harness.credit.rloo import RLOO
    from harness.world import ALONE

    advance = runner.Session.advance

    def raced(self, head, state, view, **more):
        monkeypatch.setattr(runner.Session, "advance", advance)
        maps = dataclasses.replace(self.experiment.maps, C=RLOO())
        rival = dataclasses.replace(self.experiment, maps=maps, rounds=3)
        assert runner.rounds(rival, ALONE) == 0
        return advance(self, head, state, view, **more)

    monkeypatch.setattr(runner.Session, "advance", raced)
    said = here(copied, *SMALL, "rounds=3")
    assert said.code == 1
    assert re.search(r"error: round 2 of branch .main. was committed by another process .* this "
                     "one is kept as an attempt, with its cost", said.err)  # fmt: skip
    assert said.err.count("\n") == 1
    listed = " ".join(here(copied, "log").out.split())
    assert re.search(r"attempt at round 2 \(beaten after A\): .*tokens/sampled [1-9]", listed)
    assert here(copied, "verify").code == 0
    assert "nothing to do" in here(copied, *SMALL, "rounds=3").out


def interrupted(start, folder, words, after, how):
    """Start, wait until a round's line, wait a moment more, and end it; everything it said."""
    process = start(folder, *words)
    said = []
    for line in process.stdout:
        said.append(line)
        if re.match(rf" +{after}  reward", line):
            break
    time.sleep(random.uniform(0, 0.5))
    process.send_signal(how)
    out, err = process.communicate()
    return process.returncode, "".join(said) + out, err


def test_killed_and_terminated_it_verifies_goes_on_and_ends_the_same(
    project, apart, here, undisturbed
):
    words = (*SMALL, f"rounds={ROUNDS}")
    for after, how in ((0, signal.SIGKILL), (2, signal.SIGTERM), (3, signal.SIGKILL)):
        if len(identities(here, project)) > after:
            continue
        code, out, err = interrupted(apart, project, words, after, how)
        assert code in (-how, 128 + how, 0), err
        assert "\x1b" not in out
        assert here(project, "verify").code == 0
    final = apart(project, *words)
    out, err = final.communicate()
    assert (final.returncode, err) == (0, "")
    assert identities(here, project) == identities(here, undisturbed)
    assert here(project, "verify").code == 0


def test_a_terminated_process_marks_its_attempt(project, apart, here):
    words = (*SMALL, "rounds=500", "rollout.attempts=64", "sampler.problems=16")
    # a signal that meets a commit finds a record, and no attempt: then again
    for _ in range(5):
        code, _, err = interrupted(apart, project, words, 0, signal.SIGTERM)
        assert (code, err) == (143, "")
        if found := re.search(r"attempt at round \d+ \(killed", here(project, "log").out):
            break
    assert found


def test_a_signal_that_a_library_swallowed_ends_the_process_before_the_next_map(
    project, here, monkeypatch
):
    from harness.feedback.verified import Verified

    feedback, rounds = Verified.__call__, []

    def swallowing(self, *given):
        rounds.append(given)
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), signal.SIGTERM)
        return feedback(self, *given)

    monkeypatch.setattr(Verified, "__call__", swallowing)
    assert here(project, *SMALL, "rounds=3").code == 143
    assert len(rounds) == 1
    assert re.search(r"attempt at round 0 \(killed", here(project, "log").out)


@pytest.mark.slow
def test_twenty_kills_leave_no_trace(tmp_path_factory, empty_ledger, apart, here, undisturbed):
    words = (*SMALL, f"rounds={ROUNDS}")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    origin = [commit.stdout.strip()[:12], f"{platform.machine()} {os.cpu_count()} cores"]
    began = time.monotonic()
    apart(tmp_path_factory.mktemp("timed"), *words).communicate()
    seconds = time.monotonic() - began
    chance = random.Random(20)
    target = ROOT / "sweeps" / "results" / "kills.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="", buffering=1) as file:
        table = csv.writer(file)
        table.writerow(
            ["trial", "after_round", "and_s", "rounds_left", "verify", "same", "commit", "machine"]
        )
        for trial in range(20):
            folder = tmp_path_factory.mktemp("killed")
            shutil.copy(empty_ledger, folder / "mlflow.db")
            # one in six at any time, the others inside of a round after the first
            after, moment = trial % ROUNDS - 1, chance.uniform(0, 0.4)
            if after < 0:
                moment = chance.uniform(0, seconds)
            process = apart(folder, *words)
            for line in process.stdout if after >= 0 else ():
                if re.match(rf" +{after}  reward", line):
                    break
            time.sleep(moment)
            process.kill()
            process.communicate()
            left = len(identities(here, folder)) if here(folder, "log").code == 0 else 0
            green = left == 0 or here(folder, "verify").code == 0
            code = here(folder, *words).code
            same = code == 0 and identities(here, folder) == identities(here, undisturbed)
            table.writerow([trial, after, f"{moment:.2f}", left, green, same, *origin])
            assert green
            assert same


def written(monkeypatch, then=lambda: None):
    """Where and when models are stored from here on: the thread, and what runs when it begins."""
    from harness import store

    seen, publish = [], store._publish

    def watched(value, path):
        if value.kind == "model":
            seen.append(threading.current_thread().name)
            then()
        publish(value, path)

    monkeypatch.setattr(store, "_publish", watched)
    return seen


def test_a_state_is_written_beside_the_next_rollout_and_before_the_next_update(
    undisturbed, project, here, monkeypatch
):
    from harness.update.engine import Engine

    events, step = [], Engine.step
    monkeypatch.setattr(Engine, "step", lambda *given: (events.append("step"), step(*given))[1])
    slowly = lambda: (events.append("begun"), time.sleep(0.5), events.append("written"))  # noqa: E731
    seen = written(monkeypatch, slowly)
    assert here(project, *SMALL, f"rounds={ROUNDS}").code == 0
    assert any(name.startswith("states") for name in seen)
    begun = [i for i, event in enumerate(events) if event == "begun"]
    # no weight changes in between
    assert {events[i + 1] for i in begun} == {"written"}
    assert "step" in events[begun[-2] :]
    assert identities(here, project) == identities(here, undisturbed)
    assert here(project, "verify", "--deep").code == 0


def test_a_state_that_cannot_be_written_beside_ends_the_next_round_and_loses_nothing(
    undisturbed, project, here, monkeypatch
):
    def full():
        if threading.current_thread() is not threading.main_thread():
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        written(patch, full)
        said = here(project, *SMALL, f"rounds={ROUNDS}")
    assert said.code == 1
    assert said.err.startswith("error: the disk is full")
    kept = identities(here, project)
    assert 0 < len(kept) < ROUNDS
    assert here(project, "verify").code == 0
    assert here(project, *SMALL, f"rounds={ROUNDS}").code == 0
    assert identities(here, project) == identities(here, undisturbed)


@pytest.fixture
def small_disk(tmp_path, empty_ledger):
    """A folder on a disk of its own, and what gives that disk another size."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def sized(megabytes, *more):
        options = ",".join([f"size={megabytes}m", *more])
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        return subprocess.run(command, capture_output=True).returncode == 0

    if not sized(8):
        pytest.skip("this process may not mount a disk")
    shutil.copy(empty_ledger, folder / "mlflow.db")
    yield folder, lambda megabytes: sized(megabytes, "remount")
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_one_sentence_and_loses_no_record(small_disk, here, undisturbed):
    folder, resize = small_disk
    words = (*SMALL, f"rounds={ROUNDS}", "store.snapshot_every=1")
    said = here(folder, *words)
    assert said.code == 1
    assert re.fullmatch(
        r"error: the disk is full \([^\n]+\); free some room, and the same command goes on from "
        r"the last record\n", said.err
    )  # fmt: skip
    assert resize(200)
    committed = identities(here, folder) if here(folder, "log").code == 0 else []
    assert committed == identities(here, undisturbed)[: len(committed)]
    assert here(folder, *words).code == 0
    assert here(folder, "verify").code == 0
    assert identities(here, folder) == identities(here, undisturbed)


def test_a_terminal_shows_the_phase_the_speed_the_reward_and_the_cost(project, apart):
    master, slave = pty.openpty()
    # long enough in each phase for the line to be drawn
    large = ("rounds=3", "rollout.attempts=128", "sampler.problems=32")
    process = apart(
        project, *SMALL, *large, stdout=slave, stderr=slave, stdin=slave,
        environment={"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"},
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while process.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.2)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:
                break
    os.close(master)
    text = shown.decode()
    assert process.wait() == 0
    assert "\x1b[" in text
    assert re.search(r"rolling out", text)
    assert re.search(r"[\d,]+ tokens/s", text)
    assert re.search(r"reward \d\.\d{3}, so far [\d,]+ tokens and \d\.\de\+\d+ FLOP", text)
    assert "small, 3 rounds" in text
