"""How a ledger's speed depends on its length: a row of figures for each number of records.

python sweeps/ledger_scale.py 10 1000 10000        appends to sweeps/results/ledger.csv
python sweeps/ledger_scale.py --grow FOLDER 50000  only makes a ledger longer, and keeps it
python sweeps/ledger_scale.py --in FOLDER          measures that one

Every record is real, with its values (see tests/ledger/synthetic.py). Medians of the head's look-up
and of an append with its values; verification of the whole lineage once, in wall time and in this
process's own.
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


def median_ms(call, times):
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begun))
    return statistics.median(taken)


def grown(folder, records):
    """The lineage in a folder, with so many records at least, and its store."""
    import rounds
    import synthetic

    from harness.ledger.connection import optimize
    from harness.ledger.ledger import Ledger
    from harness.store import Store

    ledger, store = Ledger.open(f"sqlite:///{folder}/mlflow.db"), Store(f"{folder}/cas")
    lineage = ledger.begin("long", rounds.begin(store=store))
    if (missing := records - lineage.head().n - 1) > 0:
        synthetic.grow(ledger, lineage, missing, store)
        optimize(ledger.uri)
    return lineage, store


def measure(records, folder):
    """One row, of the ledger in a folder."""
    import rounds

    from harness.ledger.verify import verify

    lineage, store = grown(folder, records)
    records = lineage.head().n + 1
    wall, own = time.perf_counter(), time.process_time()
    report = verify(lineage, store)
    wall, own = time.perf_counter() - wall, time.process_time() - own
    assert (report.problems, report.notes, report.records) == ([], [], records + 1)
    head = median_ms(lineage.head, 20)
    append = median_ms(lambda: rounds.append(lineage, store=store), 10)
    return {
        "records": records, "head_ms": round(head, 2), "append_ms": round(append, 1),
        "verify_records_per_s": round(records / wall, 1),
        "verify_records_per_cpu_s": round(records / own, 1), "values": "checked",
    }  # fmt: skip


def main(counts, kept=None):
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
            row = measure(count, kept or folder)
        row |= {"load": round(os.getloadavg()[0], 1), "commit": commit, "machine": machine}
        with RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if fresh:
                writer.writeheader()
                fresh = False
            writer.writerow(row)
        print(row, flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--grow"]:
        grown(words[1], int(words[2]))
    elif words[:1] == ["--in"]:
        main([0], words[1])
    else:
        main([int(word) for word in words] or [10, 1000])
