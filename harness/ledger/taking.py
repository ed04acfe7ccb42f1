"""Appending the records of a checked bundle that are not here yet."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.ledger import files, projection
from harness.ledger.attempt import ENDED, ORIGIN, SPENT, WRITER, writer
from harness.ledger.bundle import GONE
from harness.ledger.connection import retrying
from harness.ledger.entry import MAIN, RETIRED, STATE, Entry, folder_of
from harness.ledger.ledger import GENESIS, NAME, Ledger
from harness.ledger.lineage import Lineage
from harness.ledger.record import Document

STORE = "harness.store"
IMPORTED = "harness.imported"
"""Tag of a lineage run: records of it came with a bundle, the archived source among them."""


@dataclass
class Checked:
    """A bundle of which everything holds."""

    name: str
    documents: list[Document] = field(default_factory=list)
    pages: dict[int, dict[str, Path]] = field(default_factory=dict)
    values: list[tuple[str, str, Path]] = field(default_factory=list)
    retired: list[tuple[str, str, str]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)


def present(lineage: Lineage, checked: Checked) -> dict[str, Entry]:
    """The records that are here already, by seal. Raises ValueError where they are others."""
    if lineage.genesis.seal != checked.documents[0].seal:
        raise ValueError(
            f"the lineage {lineage.name!r} here began otherwise; give another name with --name"
        )
    found = {e.seal: e for b in (MAIN, *lineage.forks()) for e in lineage.walk(b)}
    places = {(e.document.parent_seal, e.branch): e for e in found.values()}
    for document in checked.documents:
        there = places.get((document.parent_seal, document.branch))
        if there is not None and there.seal != document.seal:
            raise ValueError(
                f"round {document.n} of {document.branch!r} is another here; give another name "
                "with --name"
            )
    return found


def begin(ledger: Ledger, checked: Checked, root: str) -> tuple[Lineage, int]:
    """Write the whole lineage ahead; only what confirms its first record makes it one."""
    client, document = ledger.client, checked.documents[0]
    tags = {"ledger.kind": "lineage", WRITER: writer(), STORE: root}
    run = retrying(lambda: client.create_run(
        ledger.experiment.experiment_id, tags=tags, run_name=checked.name
    ))  # fmt: skip
    lineage = ledger.lineage(run, checked.name)
    done = False
    try:
        files.write(folder_of(client, run), {files.RECORD: document.encoded})
        genesis = Entry(lineage.run, document, {})
        count = 1 + append(lineage, checked, {document.seal: genesis})
        lineage._batch(lineage.run, {**projection.params(document), NAME: checked.name})
        elected = ledger._elect(lineage, document.seal)
        done = elected is not None and elected.run == lineage.run
        if not done:
            raise ValueError(f"another process began {checked.name!r} meanwhile; import again")
    finally:
        if not done:
            lineage._swap(lineage.run, GENESIS, "void")
            client.set_terminated(lineage.run, "FAILED")
            client.delete_run(lineage.run)
    client.set_terminated(lineage.run, "FINISHED")
    return lineage, count


def imported(lineage: Lineage) -> bool:
    """Whether records of a lineage came with a bundle."""
    return IMPORTED in lineage.client.get_run(lineage.run).data.tags


def append(lineage: Lineage, checked: Checked, present: dict[str, Entry]) -> int:
    retrying(lambda: lineage.client.set_tag(lineage.run, IMPORTED, "yes"))
    count = 0
    for i, document in enumerate(checked.documents):
        if document.seal in present:
            continue
        parent = present[document.parent_seal or ""]
        with lineage.attempt(parent, document.branch) as ours:
            pages = {name: path.read_bytes() for name, path in checked.pages.get(i, {}).items()}
            sealed = document.sealed.get("files", {})
            gone = {name: pages.pop(name).decode() for name in pages.keys() - sealed.keys()}
            if gone:
                names = sorted(name.removesuffix(GONE) for name in gone)
                note = json.dumps({"files": names, "why": min(gone.values())[:1000]})
                lineage.client.set_tag(ours.run, RETIRED, note)
            files.write(ours.artifact_uri, {files.RECORD: document.encoded, **pages})
            lineage.describe(ours, document)
            present[document.seal] = lineage.commit(ours, document)
        count += 1
    _attempts(lineage, checked)
    return count


def _attempts(lineage: Lineage, checked: Checked) -> None:
    """List what became no record where it was made, once each."""
    client, there = lineage.client, {attempt.origin for attempt in lineage.attempts()}
    for row in checked.attempts:
        if row["origin"] in there:
            continue
        tags = {
            "mlflow.parentRunId": lineage.run, STATE: row["state"], ORIGIN: row["origin"],
            SPENT: json.dumps({"stage": row["stage"], "cost": row["cost"]}, sort_keys=True),
            "ledger.branch": row["branch"], "ledger.index": str(row["n"]),
        }  # fmt: skip
        run = client.create_run(
            lineage.experiment, tags=tags, run_name=f"{lineage.name}/{row['n']:05d}"
        )
        client.set_terminated(run.info.run_id, ENDED[row["state"]])
