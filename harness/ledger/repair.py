"""Complete what a crash left. A committed record is never altered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from harness.ledger import connection, files, projection, rows
from harness.ledger.attempt import Attempt, Spent
from harness.ledger.curves import Curves
from harness.ledger.entry import HEAD, MAIN, STATE, Entry, document_of, folder_of
from harness.ledger.lineage import Lineage
from harness.ledger.reader import Reader
from harness.ledger.record import Broken, Document


def repair(lineage: Lineage) -> list[str]:
    """Finish projections, hints and statuses; returns a sentence for each thing done."""
    done = _moved(lineage)
    reader, curves, seen = Reader(lineage), Curves(lineage), set[str]()
    for branch in (MAIN, *lineage.forks()):
        for entry in lineage.walk(branch):
            if entry.n < 0 or entry.run in seen:
                continue
            seen.add(entry.run)
            curves.add(entry.document, projection.metrics(entry.document))
            run = reader.run(entry.run)
            if run.data.tags.get(STATE) != "committed" or run.info.status != "FINISHED":
                lineage.finish(entry)
                done.append(f"round {entry.n}: its run is shown as finished")
        done += _hint(lineage, branch, entry)
    done += _points(lineage, curves)
    for attempt in lineage.attempts():
        if attempt.status == "RUNNING" and not attempt.alive:
            _end(lineage, attempt)
            done.append(f"attempt {attempt.run} at round {attempt.n}: its process is gone, killed")
    connection.optimize(lineage.client.tracking_uri)
    return done


def _moved(lineage: Lineage) -> list[str]:
    """Have MLflow look for artifacts where they are, after their folder was moved."""
    run = lineage.client.get_run(lineage.run)
    old, new = run.info.artifact_uri, folder_of(lineage.client, run)
    if old == new or not new.startswith("file:"):
        return []
    tail = f"/{lineage.run}/artifacts"
    rows.rehome(lineage.client, lineage.experiment, old.removesuffix(tail), new.removesuffix(tail))
    return [f"its folder was moved: MLflow's pages look in {new.removesuffix(tail)} now"]


def adoptable(lineage: Lineage) -> list[tuple[Spent, Document]]:
    """Attempts that hold a whole record which could follow the head of its branch."""
    heads = {branch: lineage.head(branch) for branch in (MAIN, *lineage.forks())}
    found = []
    for attempt in lineage.attempts():
        head = heads.get(attempt.branch)
        try:
            document = document_of(lineage.client, lineage.client.get_run(attempt.run))
        except Broken:
            continue
        if head is not None and document.parent_seal == head.seal and not attempt.alive:
            found.append((attempt, document))
    return found


def adopt(lineage: Lineage, run_id: str) -> Entry:
    """Append the record of an attempt that was complete but for its commit."""
    for attempt, document in adoptable(lineage):
        if attempt.run != run_id:
            continue
        uri = folder_of(lineage.client, lineage.client.get_run(run_id))
        for name, expected in document.sealed.get("files", {}).items():
            data = files.read(uri, name)
            if data is None or "sha256:" + hashlib.sha256(data).hexdigest() != expected:
                raise ValueError(f"the attempt {run_id} lacks its artifact {name}; run the round")
        ours = Attempt(lineage, lineage.head(attempt.branch), attempt.branch, run_id, uri)
        lineage.describe(ours, document)
        return lineage.commit(ours, document)
    raise ValueError(
        f"the attempt {run_id} holds no whole record that could follow the head; run the round"
    )


def _points(lineage: Lineage, curves: Curves) -> Iterator[str]:
    """Add the points that are not there, and no other."""
    for _ in curves.problems():
        pass  # points that are wrong are for verify to name
    for branch in (MAIN, *lineage.forks()) if curves.missing else ():
        for entry in lineage.walk(branch):
            named = projection.on_lineage(entry.document)
            lacking = curves.missing.get(entry.n, set()) & named.keys()
            if lacking:
                lineage.points(entry.n, {name: named[name] for name in lacking})
                curves.missing[entry.n] -= lacking
                yield f"round {entry.n}: its points were added to the curves"


def _hint(lineage: Lineage, branch: str, head: Entry) -> list[str]:
    tags = lineage.client.get_run(lineage.run).data.tags
    if head.n < 0 or tags.get(HEAD + branch) == head.run:
        return []
    lineage.client.set_tag(lineage.run, HEAD + branch, head.run)
    return [f"branch {branch}: its head hint was moved to round {head.n}"]


def _end(lineage: Lineage, attempt: Spent) -> None:
    lineage.client.set_tag(attempt.run, STATE, "killed")
    lineage.client.set_terminated(attempt.run, "KILLED")
