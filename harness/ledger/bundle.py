"""A lineage as one file: a plain tar whose bytes are a function of the lineage.

    manifest.json                             the schema, the name, and every member's size and hash
    records/<i>/record.json                   in an order in which parents come before children
    records/<i>/pages/<name>                  the further artifacts that the record seals
    records/<i>/pages/<name>.retired          why one was dropped, where it was on purpose
    attempts.json                             the work that became no record, and what it had spent
    content/<kind>/<hex>.safetensors          the values that records name, where they are stored
    content/<kind>/<hex>.retired              why a value was dropped, where it was on purpose

Run ids, paths and times stay behind: identity is by digest.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.identity import canonical
from harness.ledger import files
from harness.ledger.attempt import ENDED
from harness.ledger.entry import MAIN, Entry, dropped, folder_of
from harness.ledger.lineage import Lineage
from harness.store import META, PACKED, Store

SCHEMA = "harness/bundle/v1"
MANIFEST = "manifest.json"
RECORD = re.compile(r"records/(0|[1-9]\d{0,8})/record\.json")
PAGE = re.compile(r"records/(0|[1-9]\d{0,8})/pages/(.+)")
GONE = ".retired"
"""Suffix of what stands in the place of an artifact that was dropped on purpose: why it was."""
CONTENT = re.compile(r"content/([a-z][a-z_-]{0,40})/([0-9a-f]{64})\.safetensors")
RETIRED = re.compile(r"content/([a-z][a-z_-]{0,40})/([0-9a-f]{64})\.retired")
ATTEMPTS = "attempts.json"
IDENTIFIER = re.compile(r"sha256:[0-9a-f]{64}")
KINDS = (*sorted(PACKED), "model", "optimizer", "source")
"""Kinds of values that a bundle may hold."""


@dataclass(frozen=True)
class Limits:
    """What a bundle may have at most: bytes of a member, bytes of all, members."""

    member: int = 8 << 30
    total: int = 64 << 30
    members: int = 2_000_000


Opener = Callable[[], contextlib.AbstractContextManager[Any]]
"""Gives a member's bytes as a file to read, as often as it is asked."""


def export(lineage: Lineage, store: Store, file: Path) -> dict[str, int]:
    """Write a bundle; returns how much is in it. The file appears whole or not at all."""
    if file.exists():
        raise ValueError(f"{file} exists; give the name of a file that does not exist yet")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"{file} lies in no folder; make {file.absolute().parent} first")
    members = list(_members(lineage, store))
    rows: list[tuple[str, int, str]] = []
    for name, opener in members:
        with opener() as data:
            rows.append((name, *measured(data)))
    head = canonical({"schema": SCHEMA, "lineage": lineage.name, "members": rows})
    scratch = file.with_name(f".{file.name}.part")
    try:
        with tarfile.open(scratch, "w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, MANIFEST, len(head), io.BytesIO(head))
            for (name, opener), (_, size, _) in zip(members, rows, strict=True):
                with opener() as data:
                    _add(tar, name, size, data)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
    kinds = (("records", RECORD), ("pages", PAGE), ("values", CONTENT), ("retired", RETIRED))
    return {what: sum(k.fullmatch(n) is not None for n, _ in members) for what, k in kinds}


def measured(data: Any) -> tuple[int, str]:
    """The size and the hash of what a file gives."""
    size, hasher = 0, hashlib.sha256()
    while block := data.read(1 << 20):
        size += len(block)
        hasher.update(block)
    return size, "sha256:" + hasher.hexdigest()


def identifiers(value: Any) -> Iterator[str]:
    """Everything in a record that is spelt as an identifier."""
    if isinstance(value, str):
        if IDENTIFIER.fullmatch(value):
            yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from identifiers(item)


def header(path: Path) -> dict[str, Any]:
    """The one metadata entry of a stored file, read as JSON and nothing else."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > 1 << 26:
            raise ValueError("its header is longer than any of ours")
        named = json.loads(file.read(size)).get("__metadata__")
    if not isinstance(named, dict) or set(named) != {META}:
        raise ValueError("its metadata is not that of a stored value")
    head: dict[str, Any] = json.loads(named[META])
    return head


def _members(lineage: Lineage, store: Store) -> Iterator[tuple[str, Opener]]:
    named: dict[str, None] = {}
    for i, entry in enumerate(entries(lineage)):
        document = entry.document
        encoded = document.encoded
        yield f"records/{i}/record.json", functools.partial(io.BytesIO, encoded)
        run = lineage.client.get_run(entry.run)
        folder = folder_of(lineage.client, run)
        for name in sorted(document.sealed.get("files", {})):
            data = files.read(folder, name)
            if data is None and name in (note := dropped(run)).get("files", []):
                why = str(note.get("why", "")).encode()
                yield f"records/{i}/pages/{name}{GONE}", functools.partial(io.BytesIO, why)
                continue
            if data is None:
                raise ValueError(f"round {entry.n} lacks its artifact {name}; `verify` says more")
            yield f"records/{i}/pages/{name}", functools.partial(io.BytesIO, data)
        named |= dict.fromkeys(identifiers([document.exact, document.sealed]))
    yield ATTEMPTS, functools.partial(io.BytesIO, canonical(_attempts(lineage)))
    found: set[tuple[str, str]] = set()
    for identifier in named:
        found |= {(kind, identifier) for kind in KINDS if store.has(kind, identifier)}
    todo = [identifier for kind, identifier in found if kind == "model"]
    while todo:
        with store.path("model", todo.pop()) as path:
            head = header(path)
        named_by = {("tokenizer", head["files"]), ("model", head["meta"].get("base"))}
        more = {(kind, it) for kind, it in named_by - found if it and store.has(kind, it)}
        todo += [identifier for kind, identifier in more if kind == "model"]
        found |= more
    for kind, identifier in sorted(found):
        name = f"content/{kind}/{identifier.removeprefix('sha256:')}.safetensors"
        yield name, functools.partial(_opened, store, kind, identifier)
    for kind, identifier in sorted((k, i) for i in named for k in KINDS if (k, i) not in found):
        if (reason := store.retired(kind, identifier)) is not None:
            name = f"content/{kind}/{identifier.removeprefix('sha256:')}.retired"
            yield name, functools.partial(io.BytesIO, reason.encode())


def _attempts(lineage: Lineage) -> list[dict[str, Any]]:
    """What is over: an attempt that may still become a record stays behind."""
    rows = [
        {"origin": a.origin, "n": a.n, "branch": a.branch, "stage": a.stage,
         "state": a.state if a.state in ENDED else "killed", "cost": dict(a.cost)}
        for a in lineage.attempts() if not a.alive
    ]  # fmt: skip
    return sorted(rows, key=lambda row: str(row["origin"]))


def entries(lineage: Lineage) -> Iterator[Entry]:
    """Every record once, parents before children."""
    seen: set[str] = set()
    for branch in (MAIN, *sorted(lineage.forks())):
        for entry in lineage.walk(branch):
            if entry.run not in seen:
                seen.add(entry.run)
                yield entry


@contextlib.contextmanager
def _opened(store: Store, kind: str, identifier: str) -> Iterator[Any]:
    with store.path(kind, identifier) as path, path.open("rb") as file:
        yield file


def _add(tar: tarfile.TarFile, name: str, size: int, data: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    tar.addfile(info, data)
