"""Processes that die, race and meet for the first time, on sqlite and behind an MLflow server."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import rounds

from harness.ledger import repair
from harness.ledger.ledger import Ledger
from harness.ledger.verify import verify
from harness.store import Store

SCRIPT = str(Path(__file__).with_name("processes.py"))
STEPS = ("created", "begun", "written", "described", "committed", "shown")


def run(*arguments, timeout=120):
    done = subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, codes = done.stdout.splitlines()
    return lines, [int(code) for code in codes.split()[1:]], done.stderr


@pytest.fixture(scope="module")
def server(fresh_database, tmp_path_factory):
    """A real MLflow server on loopback, artifacts served by it."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "server.db").write_bytes(fresh_database.read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--backend-store-uri",
         f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "artifacts"),
         "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
    )  # fmt: skip
    uri = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{uri}/health", timeout=1):
                break
        except OSError:
            time.sleep(0.1)
    yield uri
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)


def green(lineage, store=None):
    report = verify(lineage, store)
    assert report.problems == []
    return report


@pytest.fixture(scope="module")
def crashed(fresh_database, tmp_path_factory):
    folder = tmp_path_factory.mktemp("crashed")
    uri = f"sqlite:///{folder}/mlflow.db"
    (folder / "mlflow.db").write_bytes(fresh_database.read_bytes())
    _, codes, errors = run("crash", uri, folder / "cas")
    assert codes == [-9] * len(STEPS), errors
    return Ledger.open(uri), Store(str(folder / "cas"))


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_of_a_commit_leaves_a_lineage_that_verifies_and_goes_on(crashed, step):
    ledger, store = crashed
    lineage = ledger.find(f"crash {step}")
    committed = step in ("committed", "shown")
    before = green(lineage, store)
    assert before.heads["main"].n == (2 if committed else 1)
    assert bool(before.notes) == committed
    lost = [(a.state, a.alive, a.cost) for a in lineage.attempts()]
    assert lost == ([] if committed else [("attempt", False, {"tokens": 7})])

    rounds.append(lineage, store=store)
    done = repair.repair(lineage)
    assert done
    assert repair.repair(lineage) == []
    assert green(lineage, store).notes == []
    assert lineage.totals()["attempts"] == ({} if committed else {"tokens": 7})
    assert [a.state for a in lineage.attempts()] == ([] if committed else ["killed"])
    undisturbed = ledger.begin(f"undisturbed {step}", rounds.begin())
    for _ in range(3):
        rounds.append(undisturbed)
    same = [entry.identity for entry in undisturbed.walk()]
    assert [entry.identity for entry in lineage.walk()][:4] == same


def test_a_whole_orphan_can_be_adopted_while_it_could_follow_the_head(ledger, tmp_path):
    store = Store(str(tmp_path / "cas"))
    lineage = ledger.begin("a", rounds.begin(store=store))
    rounds.append(lineage, store=store)

    class Stop(Exception):
        pass

    def stop(name):
        if name == "written":
            raise Stop

    attempt = lineage.attempt(lineage.head())
    with pytest.raises(Stop), attempt:
        rounds.append(lineage, store=store, attempt=attempt, step=stop)
    ((found, _),) = repair.adoptable(lineage)
    assert (found.run, found.state, found.status) == (attempt.run, "failed", "FAILED")
    assert repair.adopt(lineage, attempt.run).n == 1
    repair.repair(lineage)
    assert green(lineage, store).notes == []
    assert lineage.attempts() == []
    with pytest.raises(ValueError, match="holds no whole record"):
        repair.adopt(lineage, attempt.run)


def raced(uri, writers, each, name="race", timeout=120):
    ledger = Ledger.open(uri)
    lineage = ledger.begin(name, rounds.begin())
    lines, codes, errors = run("race", uri, writers, each, name, timeout=timeout)
    assert codes == [0] * writers, errors
    beaten = sum(int(line.split()[2]) for line in lines)
    entries = list(lineage.walk())
    assert [entry.n for entry in entries] == list(range(-1, writers * each))
    assert len({entry.seal for entry in entries}) == len(entries)
    attempts = lineage.attempts()
    assert [a.state for a in attempts] == ["beaten"] * beaten
    assert all(a.cost["steps"] == 2 and a.status == "KILLED" for a in attempts)
    assert lineage.totals()["committed"]["steps"] == 2 * writers * each
    assert green(lineage).notes[:-1] == []
    return beaten


def test_four_writers_lose_no_record_and_double_none(ledger):
    assert raced(ledger.uri, 4, 3) > 0


def test_writers_race_through_a_server_as_well(server):
    raced(server, 2, 2)


@pytest.mark.slow
def test_sixteen_writers_lose_no_record_and_double_none(ledger):
    assert raced(ledger.uri, 16, 3, timeout=500) > 0


@pytest.mark.slow
def test_sixteen_writers_race_through_a_server(server):
    assert raced(server, 16, 3, name="race of sixteen", timeout=500) > 0


def test_a_disk_that_fills_up_leaves_what_was_committed(ledger, tmp_path):
    lines, codes, _ = run("fill", ledger.uri, tmp_path / "cas")
    assert codes == [0]
    (word, count), store = lines[0].split(), Store(str(tmp_path / "cas"))
    assert (word, int(count) > 0) == ("full", True)
    lineage = ledger.find("full")
    committed = list(lineage.walk())[-1].n + 1
    assert committed == int(count)
    assert verify(lineage, store).problems == []
    rounds.append(lineage, store=store)
    repair.repair(lineage)
    report = green(lineage, store)
    assert (report.notes, report.records) == ([], committed + 2)


@pytest.mark.parametrize("name", ["create_run", "log_batch", "log_param", "set_tag"])
def test_a_store_that_fails_in_the_middle_loses_no_record(ledger, monkeypatch, name):
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    lineage = ledger.begin("a", rounds.begin())
    rounds.append(lineage)
    kept = getattr(MlflowClient, name)

    def fails(*given, **more):
        raise MlflowException("the store went away")

    monkeypatch.setattr(MlflowClient, name, fails)
    with pytest.raises(MlflowException, match="went away"):
        rounds.append(lineage)
    monkeypatch.setattr(MlflowClient, name, kept)
    rounds.append(lineage)
    repair.repair(lineage)
    report = green(lineage)
    assert report.records == (4 if name == "set_tag" else 3)


def test_four_first_comers_make_one_store_one_experiment_and_one_lineage(tmp_path):
    lines, codes, errors = run("begin", f"sqlite:///{tmp_path}/mlflow.db")
    assert (codes, errors) == ([0] * 4, "")
    assert len(lines) == 4
    assert len(set(lines)) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlartifacts", "mlflow.db"]


def test_first_comers_of_a_server_begin_one_lineage(server):
    lines, codes, errors = run("begin", server)
    assert codes == [0] * 4, errors
    assert len(set(lines)) == 1
    assert len([line for line in Ledger.open(server).lineages() if line.name == "one"]) == 1


def test_a_lineage_lives_behind_a_server(server):
    ledger = Ledger.open(server, "served")
    store = Store(ledger.content_root)
    lineage = ledger.begin("a", rounds.begin(store=store))
    for n in range(2):
        entry = rounds.append(lineage, store=store, artifacts={"p/page.html": b"x"}, accept=n == 0)
    assert lineage.head() == entry
    assert green(lineage, store).records == 3
    store.delete("credit", rounds.contents(0)["G"].id)
    assert [f.field for f in verify(lineage, store).problems] == ["G content"]


def test_a_signal_marks_the_attempt_as_killed(ledger):
    process = subprocess.Popen(
        [sys.executable, SCRIPT, "terminate", ledger.uri],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 143
    (attempt,) = ledger.find("terminated").attempts()
    assert (attempt.state, attempt.status, attempt.stage) == ("killed", "KILLED", "S")
    assert attempt.cost == {"tokens": 3}


def test_an_exception_marks_the_attempt_as_failed(ledger):
    lineage = ledger.begin("a", rounds.begin())
    with pytest.raises(ZeroDivisionError), lineage.attempt(lineage.head()):
        raise ZeroDivisionError
    assert [(a.state, a.status) for a in lineage.attempts()] == [("failed", "FAILED")]
