"""A record at its place in MLflow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from harness.ledger import files
from harness.ledger.record import MAIN, Broken, Document

NEXT = "ledger.next."
"""Prefix of the write-once successor params; the branch follows. The single commit point."""
HEAD = "ledger.head."
"""Prefix of the head hints on a lineage run: tags, so never truth."""
FORK = "ledger.fork."
"""Prefix of the params on a lineage run that say where a branch left another."""
STATE = "ledger.state"
"""Tag: attempt, committed, failed, killed, beaten or twin. A hint for people and repair."""

RETIRED = "ledger.retired"
"""Tag of a record: JSON of the values and files of it that were dropped on purpose, and why."""


class Conflict(Exception):
    """Another writer's record took the place; `winner` is its entry."""

    def __init__(self, winner: Entry) -> None:
        super().__init__(
            f"round {winner.n} of branch {winner.document.branch!r} was committed by another "
            f"process ({winner.identity[:19]}…); this one is kept as an attempt, with its cost; "
            "the same command goes on from there"
        )
        self.winner = winner


@dataclass(frozen=True)
class Entry:
    """A committed record: its run, its document, and its successors by branch when it was read."""

    run: str
    document: Document
    successors: dict[str, str]

    @property
    def n(self) -> int:
        return self.document.n

    @property
    def branch(self) -> str:
        return self.document.branch

    @property
    def identity(self) -> str:
        return self.document.identity

    @property
    def seal(self) -> str:
        return self.document.seal

    @property
    def pointer(self) -> str:
        return f"{self.run}:{self.seal}"


@dataclass(frozen=True)
class Fork:
    """Where a branch begins: at a record of another branch."""

    branch: str
    n: int
    pointer: str

    def __str__(self) -> str:
        return f"{self.branch} {self.n} {self.pointer}"

    @classmethod
    def parse(cls, text: str) -> Fork:
        branch, n, pointer = text.split(" ")
        return cls(branch, int(n), pointer)


def successors(run: Any) -> dict[str, str]:
    """Branch to pointer, from the params of an MLflow run."""
    params = run.data.params
    return {k.removeprefix(NEXT): v for k, v in params.items() if k.startswith(NEXT)}


def dropped(run: Any) -> dict[str, Any]:
    """What of a record was dropped on purpose: `values`, `files` and `why`; empty where nothing."""
    try:
        note = json.loads(run.data.tags.get(RETIRED, "{}"))
    except ValueError:
        note = {}
    return note if isinstance(note, dict) else {}


def folder_of(client: Any, run: Any) -> str:
    """Where the artifacts of a run are."""
    return files.reachable(run.info.artifact_uri, client.tracking_uri)


def document_of(client: Any, run: Any, data: bytes | None = None) -> Document:
    """The record that a run holds, or that was read of it. Raises Broken where there is none."""
    data = data or files.read(folder_of(client, run), files.RECORD)
    if data is None:
        raise Broken(f"run {run.info.run_id} has no {files.RECORD}")
    return Document.parse(data)


def load(client: Any, run: Any, pointer: str | None = None, data: bytes | None = None) -> Entry:
    """Read an entry, and hold it to the pointer that led to it."""
    entry = Entry(run.info.run_id, document_of(client, run, data), successors(run))
    if pointer is not None and entry.pointer != pointer:
        raise Broken(f"round {entry.n} is {entry.pointer}, but its parent points to {pointer}")
    return entry


def branch_name(name: str) -> str:
    """A branch name as it may stand in a param's key."""
    plain = set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    if not plain or not name or len(name) > 64 or name.isdigit():
        raise ValueError(
            f"the branch name {name!r} cannot be; give a-z, 0-9 and -, at most 64, not a number"
        )
    return name


__all__ = ["FORK", "HEAD", "MAIN", "NEXT", "STATE", "Conflict", "Entry", "Fork"]
