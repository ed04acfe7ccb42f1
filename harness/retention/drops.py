"""Trajectories or states of some records, dropped for good: bytes, pages and memo entries.

The records stay as they are, with a note beside each value and a tag on each run, so that `verify`
finds nothing wrong and `replay` says what was dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from harness.ledger import files
from harness.ledger.bundle import identifiers
from harness.ledger.connection import retrying
from harness.ledger.content import SMALL, STATE
from harness.ledger.entry import MAIN, RETIRED, Entry, dropped, folder_of
from harness.ledger.lineage import Lineage
from harness.memo import SEED, Folder, digest_of
from harness.retention.holdings import memos
from harness.store import Store

TRAJECTORIES = ("Z", "F", "G")
"""Fields of a record whose values hold tokens or what was said of them."""
PAGES = ("trajectories.html",)
"""Artifacts of a record that show them."""


@dataclass(frozen=True)
class Part:
    """What is dropped of one record."""

    lineage: Lineage
    entry: Entry
    values: Mapping[str, tuple[str, str]]
    """By what the record calls them: kinds and identifiers."""
    pages: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        branch = "" if self.entry.branch == MAIN else f"@{self.entry.branch}"
        return f"{self.lineage.name}{branch}@{self.entry.n}"


def part(lineage: Lineage, entry: Entry, what: str) -> Part:
    """The trajectories of a record, or the state that it made."""
    exact = entry.document.exact
    if what == "states":
        made = exact["genesis"]["state"] if entry.n < 0 else exact["proposed"]
        return Part(lineage, entry, {kind: (kind, made[kind]) for kind in STATE})
    if entry.n < 0:
        return Part(lineage, entry, {})
    shown = tuple(name for name in PAGES if name in entry.document.sealed.get("files", {}))
    return Part(lineage, entry, {f: (SMALL[f], exact[f]) for f in TRAJECTORIES}, shown)


def stranded(parts: Iterable[Part], store: Store) -> Iterator[str]:
    """Heads whose state is not stored and would be computed from what is to be dropped."""
    gone = {value for part in parts for value in part.values.values()}
    for lineage in {part.lineage.run: part.lineage for part in parts}.values():
        for branch in (MAIN, *lineage.forks()):
            chain = list(lineage.walk(branch))
            for entry in reversed(chain):
                if all(store.has(kind, entry.document.resulting[kind]) for kind in STATE):
                    break
                if entry.n >= 0 and ("credit", entry.document.exact["G"]) in gone:
                    yield f"{lineage.name}@{branch}@{chain[-1].n}"
                    break


def drop(parts: Iterable[Part], store: Store, reason: str) -> int:
    """Drop it: memo entries first, bytes last, so that who is stopped in between can go on.
    Returns how many memo entries went."""
    parts = list(parts)
    gone = {value for part in parts for value in part.values.values()}
    folders = {path for part in parts for path in memos(part.lineage, store)}
    forgotten = sum(_forget(Folder(path), {name for _, name in gone}) for path in folders)
    for each in parts:
        client = each.lineage.client
        run = client.get_run(each.entry.run)
        note = dropped(run)
        values = sorted({*note.get("values", []), *each.values})
        pages = sorted({*note.get("files", []), *each.pages})
        text = json.dumps({"values": values, "files": pages, "why": reason})
        retrying(partial(client.set_tag, run.info.run_id, RETIRED, text))
        for name in each.pages:
            files.drop(folder_of(client, run), name)
    for kind, name in sorted(gone):
        if store.has(kind, name):
            store.retire(kind, name, reason)
    return forgotten


def _forget(folder: Folder, gone: set[str]) -> int:
    """Drop the entries whose results are gone; how many."""
    count = 0
    for name in SEED:
        for kept in folder.all(name):
            if gone & set(identifiers([kept.result, *kept.others])):
                folder.path(name, digest_of(kept.key)).unlink(missing_ok=True)
                count += 1
    return count
