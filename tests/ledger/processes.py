"""Run by tests in an own process: forks workers that share nothing but the store.

python processes.py crash|race|begin|terminate URI STORE …
"""

import os
import sys
import time

sys.path[:0] = [os.path.dirname(__file__), os.getcwd()]

import mlflow  # noqa: E402, F401 (once, before the forks)
import rounds  # noqa: E402

from harness.ledger.attempt import terminable  # noqa: E402
from harness.ledger.entry import Conflict  # noqa: E402
from harness.ledger.ledger import Ledger  # noqa: E402
from harness.store import Store  # noqa: E402

STEPS = ("created", "begun", "written", "described", "committed", "shown")


def fork(work, *arguments):
    """Start a worker."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def code(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def crash(uri, store, step):
    """Append two rounds; die without a word at a step of the third."""
    lineage = Ledger.open(uri).begin(f"crash {step}", rounds.begin(store=Store(store)))
    for _ in range(2):
        rounds.append(lineage, store=Store(store))
    attempt = lineage.attempt(lineage.head())
    attempt.checkpoint("R", {"tokens": 7})

    def die(name):
        if name == step:
            os.kill(os.getpid(), 9)

    die("created")
    rounds.append(lineage, attempt=attempt, store=Store(store), step=die)


def race(uri, writer, rounds_each, start, name):
    """Append to the head of one chain, again and again; say who was beaten how often."""
    lineage = Ledger.open(uri).find(name)
    time.sleep(max(0.0, start - time.time()))
    done = beaten = 0
    while done < rounds_each:
        parent = lineage.head()
        try:
            with lineage.attempt(parent) as attempt:
                rounds.append(lineage, parent, attempt=attempt, salt=str(writer))
            done += 1
        except Conflict:
            beaten += 1
    print(f"{writer} {done} {beaten}", flush=True)


def begin(uri, start):
    """Open a store that nobody has opened, and begin the same lineage as everybody else."""
    time.sleep(max(0.0, start - time.time()))
    ledger = Ledger.open(uri)
    print(ledger.experiment.experiment_id, ledger.begin("one", rounds.begin()).run, flush=True)


def fill(uri, store):
    """Append until no file may grow any further; say how many rounds were committed."""
    import resource
    import signal

    lineage = Ledger.open(uri).begin("full", rounds.begin(store=Store(store)))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    grown = os.path.getsize(uri.removeprefix("sqlite:///")) + 100_000
    done = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (grown, grown))
    try:
        while True:
            rounds.append(lineage, store=Store(store))
            done += 1
    except Exception:
        print("full", done, flush=True)


def endless(uri, store, ready):
    """Append to the head, for ever."""
    lineage = Ledger.open(uri).find("killed")
    os.write(ready, b".")
    while True:
        attempt = lineage.attempt(lineage.head())
        attempt.checkpoint("R", {"tokens": 7})
        rounds.append(lineage, attempt=attempt, store=Store(store))


def victims(uri, store):
    """A writer for each line of seconds; after so long at work it is killed, without a word."""
    told, ready = os.pipe()
    for line in sys.stdin:
        child = fork(endless, uri, store, ready)
        assert os.read(told, 1) == b"."
        time.sleep(float(line))
        os.kill(child, 9)
        assert code(child) == -9
        print("killed", flush=True)


def terminate(uri, _):
    """Wait inside an attempt for a signal."""
    ledger = Ledger.open(uri)
    lineage = ledger.begin("terminated", rounds.begin())
    with terminable(), lineage.attempt(lineage.head()) as attempt:
        attempt.checkpoint("S", {"tokens": 3})
        print("ready", flush=True)
        time.sleep(60)


def main(mode, uri, *rest):
    if mode == "crash":
        return [code(fork(crash, uri, rest[0], step)) for step in STEPS]
    if mode == "race":
        soon = time.time() + 1
        workers = [fork(race, uri, i, int(rest[1]), soon, rest[2]) for i in range(int(rest[0]))]
        return [code(worker) for worker in workers]
    if mode == "begin":
        soon = time.time() + 0.5
        return [code(worker) for worker in [fork(begin, uri, soon) for _ in range(4)]]
    if mode == "fill":
        return [code(fork(fill, uri, *rest))]
    if mode == "victims":
        victims(uri, *rest)
        return []
    terminate(uri, None)
    return []


if __name__ == "__main__":
    codes = main(*sys.argv[1:])
    print("codes", *codes, flush=True)
