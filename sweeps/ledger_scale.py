"""How a ledger's speed depends on its length: a row of figures for each number of records.

python sweeps/ledger_scale.py 10 1000 10000        appends to sweeps/results/ledger.csv

Every record is real (see tests/ledger/synthetic.py). Medians of the head's look-up and of an append
with its values; verification of the whole lineage once, in wall time and in this process's own.
"""

import csv
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "ledger")]

RESULTS = ROOT / "sweeps" / "results" / "ledger.csv"
COLUMNS = (
    "records", "head_ms", "append_ms", "verify_records_per_s", "verify_records_per_cpu_s",
    "values", "load", "commit", "machine",
)  # fmt: skip
WITH_VALUES = 20_000
"""Records up to which every value is stored and checked too: beyond, they are many small files."""


def median_ms(call, times):
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begun))
    return statistics.median(taken)


def measure(records, folder):
    """One row, from a fresh ledger in a folder."""
    import rounds
    import synthetic

    from harness.ledger.connection import optimize
    from harness.ledger.ledger import Ledger
    from harness.ledger.verify import verify
    from harness.store import Store

    ledger = Ledger.open(f"sqlite:///{folder}/mlflow.db")
    store = Store(f"{folder}/cas") if records <= WITH_VALUES else None
    lineage = ledger.begin("long", rounds.begin(store=Store(f"{folder}/cas")))
    synthetic.grow(ledger, lineage, records, store)
    optimize(ledger.uri)
    wall, own = time.perf_counter(), time.process_time()
    report = verify(lineage, store)
    wall, own = time.perf_counter() - wall, time.process_time() - own
    assert (report.problems, report.records) == ([], records + 1)
    head = median_ms(lineage.head, 20)
    append = median_ms(lambda: rounds.append(lineage, store=store), 10)
    return {
        "records": records, "head_ms": round(head, 2), "append_ms": round(append, 1),
        "verify_records_per_s": round(records / wall, 1),
        "verify_records_per_cpu_s": round(records / own, 1),
        "values": "checked" if store else "none",
    }  # fmt: skip


def main(counts):
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    machine = f"{platform.machine()} {os.cpu_count()} cores, Python {platform.python_version()}"
    fresh = not RESULTS.exists()
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="ledger-scale-") as folder:
            row = measure(count, folder)
        row |= {"load": round(os.getloadavg()[0], 1), "commit": commit, "machine": machine}
        with RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if fresh:
                writer.writeheader()
                fresh = False
            writer.writerow(row)
        print(row, flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [10, 1000])
