"""Processes that die, race and meet for the first time, on sqlite and behind an MLflow server."""

import contextlib
import csv
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from shutil import which

import pytest
import rounds

from harness.ledger import repair
from harness.ledger.ledger import Ledger
from harness.ledger.verify import verify
from harness.store import Store

SCRIPT = str(Path(__file__).with_name("processes.py"))
RESULTS = Path(__file__).resolve().parents[2] / "sweeps" / "results"
STEPS = ("created", "begun", "written", "described", "committed", "shown")


def run(*arguments, timeout=120):
    done = subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, codes = done.stdout.splitlines()
    return lines, [int(code) for code in codes.split()[1:]], done.stderr


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(backend, folder, workers):
    """A real MLflow server on loopback, artifacts served by it."""
    port, log = free_port(), folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", backend,
             "--artifacts-destination", str(folder / "artifacts"),
             "--host", "127.0.0.1", "--port", str(port), "--workers", str(workers)],
            stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
        )  # fmt: skip
    uri = f"http://127.0.0.1:{port}"
    try:
        _await(process, f"{uri}/health", log)
        yield uri
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def _await(process, address, log):
    """A server answers; what it said where it does not."""
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"no MLflow server at {address}:\n{log.read_text(errors='replace')[-4000:]}")


@pytest.fixture(scope="module")
def server(fresh_database, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    (folder / "server.db").write_bytes(fresh_database.read_bytes())
    with serving(f"sqlite:///{folder}/server.db", folder, 1) as uri:
        yield uri


@pytest.fixture(scope="module")
def on_postgresql(tmp_path_factory):
    """An MLflow server of two processes before a PostgreSQL of our own."""
    pytest.importorskip("psycopg2", reason="psycopg2 is not here; install psycopg2-binary")
    found = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))
    if not (initdb := found[-1] if found else which("initdb")):
        pytest.skip("no PostgreSQL is here; apt-get install postgresql brings it")
    binaries, port = Path(initdb).resolve().parent, free_port()
    # it refuses to run as root, and root's temporary folders are closed to others
    user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="harness-pg-", dir="/tmp"))
    if user:
        shutil.chown(folder, "postgres", "postgres")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **user}
    subprocess.run(
        [binaries / "initdb", "-D", folder / "data", "-U", "harness", "-A", "trust", "-E", "UTF8"],
        check=True, **quiet,
    )  # fmt: skip
    options = ("-h", "127.0.0.1", "-p", str(port), "-k", folder)
    process = subprocess.Popen([binaries / "postgres", "-D", folder / "data", *options], **quiet)
    try:
        ready = [binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        for _ in range(300):
            if subprocess.run(ready, check=False, **quiet).returncode == 0:
                break
            time.sleep(0.1)
        backend = f"postgresql+psycopg2://harness@127.0.0.1:{port}/postgres"
        with serving(backend, tmp_path_factory.mktemp("pg"), 2) as uri:
            yield uri
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def note(name, **row):
    """A row of results, with the commit and the machine that it is of."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=RESULTS, capture_output=True, text=True,
        check=False,
    ).stdout.strip()  # fmt: skip
    row |= {"commit": commit, "machine": f"{platform.machine()} {os.cpu_count()} cores"}
    fresh = not (RESULTS / name).exists()
    with (RESULTS / name).open("a", newline="") as file:
        table = csv.DictWriter(file, list(row))
        if fresh:
            table.writeheader()
        table.writerow(row)


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


def killed_at_random(ledger, store, kills, seed):
    """A writer appends until it is killed, again and again; how many kills met which step."""
    lineage, chance, most = (
        ledger.begin("killed", rounds.begin(store=store)),
        random.Random(seed),
        0,
    )
    worker = subprocess.Popen(
        [sys.executable, SCRIPT, "victims", ledger.uri, store.root],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    with worker:
        for _ in range(kills):
            worker.stdin.write(f"{chance.uniform(0.0, 0.5)}\n")
            assert worker.stdout.readline() == "killed\n"
            head = lineage.head()
            assert head.n + 1 >= most  # what was committed stays
            most = head.n + 1
            report = verify(lineage, store)
            assert report.problems == []
            if chance.random() < 0.3:
                repair.repair(lineage)
        worker.stdin.close()
    return lineage, most


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_no_committed_record(ledger, tmp_path, kills):
    store = Store(str(tmp_path / "cas"))
    began = time.monotonic()
    lineage, records = killed_at_random(ledger, store, kills, kills)
    rounds.append(lineage, store=store)
    repair.repair(lineage)
    assert repair.repair(lineage) == []
    assert green(lineage, store).notes == []
    states = [attempt.state for attempt in lineage.attempts()]
    assert set(states) <= {"killed"}
    assert records + len(states) > 0  # the kills met writers at work
    undisturbed = ledger.begin("undisturbed", rounds.begin())
    for _ in range(records + 1):
        rounds.append(undisturbed)
    assert [e.identity for e in lineage.walk()] == [e.identity for e in undisturbed.walk()]
    if kills == 200:
        assert records > 20
        assert len(states) > 20
        note("kills_of_commits.csv", kills=kills, committed=records, attempts=len(states), lost=0,
             verify="all right", seconds=round(time.monotonic() - began, 1))  # fmt: skip


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


def test_writers_lose_no_record_and_double_none(ledger):
    assert raced(ledger.uri, 4, 2) > 0


def test_writers_race_through_a_server_as_well(server):
    raced(server, 2, 2)


def test_writers_race_on_postgresql_behind_a_server(on_postgresql):
    raced(on_postgresql, 4, 1)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "server", "postgresql"])
def test_sixteen_writers_lose_no_record_and_double_none(store, ledger, request):
    fixture = {"server": "server", "postgresql": "on_postgresql"}.get(store)
    uri = request.getfixturevalue(fixture) if fixture else ledger.uri
    began = time.monotonic()
    beaten = raced(uri, 16, 2, name="race of sixteen", timeout=900)
    assert beaten > 0
    note("races.csv", store=store, writers=16, committed=32, beaten=beaten, lost=0, twice=0,
         seconds=round(time.monotonic() - began, 1))  # fmt: skip


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
