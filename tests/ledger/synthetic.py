"""A long lineage in no time: rows and files as the ledger would have written them.

Records, digests, params, metrics, curves and pointers are real; only the way to the database is
short: bulk statements in place of one call a step, and no fsync.
"""

import contextlib
import sqlite3
import uuid
from pathlib import Path

import rounds

from harness.ledger import projection, record
from harness.ledger.entry import Entry


@contextlib.contextmanager
def unsynced():
    """Values stored without waiting for the disk."""
    from harness import durable

    kept, durable.sync = durable.sync, lambda path: None
    try:
        yield
    finally:
        durable.sync = kept


def grow(ledger, lineage, count, store=None, batch=500):
    """Append `count` rounds after the head of main of a lineage on a sqlite file."""
    database = ledger.uri.removeprefix("sqlite:///")
    root = ledger.experiment.artifact_location.removeprefix("file://")
    parent = lineage.head()
    clock = lineage.client.get_run(parent.run).info.start_time
    with contextlib.closing(sqlite3.connect(database)) as connection, unsynced():
        while count > 0:
            with connection:
                tables = Rows()
                for _ in range(min(batch, count)):
                    parent = _append(tables, ledger, lineage, parent, root, store, clock)
                tables.insert(connection, lineage, parent)
            count -= batch
    return parent


class Rows:
    """Rows of MLflow's tables that wait to be inserted."""

    def __init__(self):
        self.runs, self.params, self.tags = [], [], []
        self.metrics, self.latest = [], []

    def insert(self, connection, lineage, head):
        many = connection.executemany
        many(
            "insert into runs (run_uuid, name, source_type, source_name, entry_point_name, user_id,"
            " status, start_time, end_time, source_version, lifecycle_stage, artifact_uri,"
            " experiment_id) values (?,?,'UNKNOWN','','','unknown','FINISHED',?,?,'','active',?,?)",
            self.runs,
        )
        many("insert into params (run_uuid, key, value) values (?,?,?)", self.params)
        many("insert into tags (run_uuid, key, value) values (?,?,?)", self.tags)
        columns = "(run_uuid, key, value, is_nan, timestamp, step) values (?,?,?,?,?,?)"
        many(f"insert into metrics {columns}", self.metrics)
        many(f"insert or replace into latest_metrics {columns}", self.latest)
        many(
            "insert or replace into tags (run_uuid, key, value) values (?,?,?)",
            [(lineage.run, "ledger.head.main", head.run)],
        )


def _append(tables, ledger, lineage, parent, root, store, clock):
    exact = rounds.exact(parent, store=store, accept=parent.n % 5 != 3)
    document = record.following(parent.document, "main", exact, rounds.sealed(parent.n + 1), {})
    run, n, now = uuid.uuid4().hex, document.n, clock + 1 + parent.n + 1
    folder = Path(root) / run / "artifacts"
    folder.mkdir(parents=True)
    (folder / "record.json").write_bytes(document.encoded)
    tables.runs.append(
        (run, f"{lineage.name}/{n:05d}", now, now, f"file://{folder}",
         int(ledger.experiment.experiment_id))
    )  # fmt: skip
    own = {"ledger.lineage": lineage.run, "ledger.parent_run": parent.run}
    tables.params += [(run, k, v) for k, v in {**projection.params(document), **own}.items()]
    entry = Entry(run, document, {})
    tables.params.append((parent.run, "ledger.next.main", entry.pointer))
    tags = {
        "mlflow.parentRunId": lineage.run, "mlflow.runName": f"{lineage.name}/{n:05d}",
        "ledger.state": "committed", "ledger.branch": "main", "ledger.index": str(n),
        "ledger.parent_run": parent.run,
    }  # fmt: skip
    tables.tags += [(run, k, v) for k, v in tags.items()]
    rows = [(name, *_number(value), now, n) for name, value in projection.metrics(document).items()]
    for owner in (run, lineage.run):
        tables.metrics += [(owner, *row) for row in rows]
        tables.latest += [(owner, *row) for row in rows]
    return entry


def _number(value):
    """A value and its flag as MLflow keeps them."""
    if value != value:
        return 0.0, 1
    return max(-1.7976931348623157e308, min(1.7976931348623157e308, value)), 0
