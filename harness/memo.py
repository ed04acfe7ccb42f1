"""Results of pure maps, kept under what they are functions of.

    key(f) = H("memo", {f, version, ω_f, inputs, fingerprints, platform; of R: ν, υ})

    inputs:   S none   R X   F X, Z   C X, Z, F   U M, s, Γ       (by identifier; A reads κ: never)

An entry holds the name of a result, its bytes are in the store; of U it holds the decision, the
report, and the identifiers of the proposal. Settings are in the version, as in a record's identity.
The fingerprints are of the map's source and libraries and of what it runs: the environment, the
inference settings, the engine. Equal keys and other results are *nondeterminism*: such an entry
keeps both and is never taken again.

Entries are files that many processes share: each is written whole under another name and renamed,
and begins with the digest of the rest. One that is damaged is none, so nothing waits for the disk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.fingerprint import parts
from harness.identity import canonical, digest
from harness.store import Store

SEED = {"S": "task", "R": "roll", "F": "feed", "C": "credit", "U": "update"}
"""The maps that are found again, and the part of ω that each reads."""
RESULT = {"S": "X", "R": "Z", "F": "F", "C": "G"}
"""What a map's result is called in a record; that of U is (d, M̃, s̃)."""
INPUTS = {
    "S": (), "R": ("X",), "F": ("X", "Z"), "C": ("X", "Z", "F"), "U": ("model", "optimizer", "G"),
}  # fmt: skip
CODE = {
    "S": ("S",), "R": ("R", "environment", "inference", "engine"), "F": ("F",), "C": ("C",),
    "U": ("U", "engine"),
}  # fmt: skip
"""The fingerprints that a result depends on, by their names under a record's seal."""
SET_BY_MAPS = ("deterministic_algorithms",)
"""Flags that every map that computes sets itself."""


@dataclass(frozen=True)
class Off:
    """Nothing is found again, and nothing is kept."""

    def folder(self, store: Store) -> Folder | None:
        return None


@dataclass(frozen=True)
class Memo(Off):
    """What is kept, and how far it is trusted."""

    root: str | None = None
    """A folder; null: `memo` in the root of a local store, and no memo with any other."""
    check_every: int = 10
    """Every so many finds of a map, over all processes, one is computed again and compared."""
    from_seconds: float = 0.02
    """Results of less work are not kept."""

    def __post_init__(self) -> None:
        if self.check_every < 1:
            raise ValueError(f"memo.check_every is {self.check_every}; it is at least 1")
        if not self.from_seconds >= 0:
            raise ValueError(f"memo.from_seconds is {self.from_seconds}; it is at least 0")

    def folder(self, store: Store) -> Folder | None:
        root = Path(self.root).expanduser() if self.root else store.beside("memo")
        return None if root is None else Folder(root)


def key_of(name: str, exact: Mapping[str, Any], sealed: Mapping[str, Any]) -> dict[str, Any]:
    """What the result of a map is a function of, from the parts of a record that say so."""
    named = {**exact["starting"], **exact}
    flags = {k: v for k, v in sealed["flags"].items() if k not in SET_BY_MAPS}
    key = {
        "map": name, "version": exact["v"][name], "seed": exact["omega"][SEED[name]],
        "inputs": {part: named[part] for part in INPUTS[name]},
        "code": {part: sealed["fingerprints"][part] for part in CODE[name]},
        "platform": {**sealed["platform"], "flags": flags},
    }  # fmt: skip
    if name == "R":
        key |= {"stamp": exact["nu"], "environment": exact["upsilon"]}
    return key


def digest_of(key: Mapping[str, Any]) -> str:
    return digest("memo", canonical(key))


def unseen(*things: Any) -> str:
    """Why results of a map made of these are never kept; empty if they may be.

    A map, or a part of one, that depends on what neither its settings nor its fingerprint show (a
    user's function, an engine outside of this process) says so in `unseen: ClassVar[str]`.
    """
    for thing in things:
        for part in parts(thing):
            said = getattr(type(part), "unseen", "")
            if said:
                return str(said)
            if not type(part).__module__.startswith("harness."):
                return f"{type(part).__module__} is not of this project: its code is not looked at"
    return ""


@dataclass(frozen=True)
class Kept:
    """An entry."""

    key: Mapping[str, Any]
    result: Mapping[str, Any]
    """`kind` and `id` of a value; of U: `decision`, `model`, `optimizer`, `metas`, `report`."""
    seconds: float
    """What the work took."""
    of: str
    """The round that it was for."""
    others: tuple[Mapping[str, Any], ...] = ()
    """Other results of the same key: the map is not deterministic."""

    def encoded(self) -> bytes:
        body = json.dumps(dataclasses.asdict(self)).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def parse(cls, data: bytes) -> Kept | None:
        """None where these are not the bytes of an entry."""
        begin, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != begin:
            return None
        try:
            read = json.loads(body)
            return cls(**{**read, "others": tuple(read["others"])})
        # of another version of the program
        except (TypeError, KeyError, ValueError):
            return None


@dataclass(frozen=True)
class Folder:
    """Entries by map and key."""

    root: Path

    def path(self, name: str, key: str) -> Path:
        digits = key.removeprefix("sha256:")
        return self.root / name / digits[:2] / f"{digits}.json"

    def read(self, name: str, key: str) -> Kept | None:
        """The entry of a key; None where there is none, or it is damaged."""
        try:
            kept = Kept.parse(self.path(name, key).read_bytes())
        except OSError:
            return None
        return kept if kept is not None and digest_of(kept.key) == key else None

    def write(self, kept: Kept) -> None:
        path = self.path(str(kept.key["map"]), digest_of(kept.key))
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{uuid.uuid4().hex}")
        try:
            scratch.write_bytes(kept.encoded())
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)

    def count(self, name: str) -> int:
        """One more find of a map: which of all processes' it is, from 1 on."""
        self.root.mkdir(parents=True, exist_ok=True)
        # appending is atomic, and leaves the position behind one's own byte
        file = os.open(self.root / f"{name}.finds", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)

    def all(self, name: str) -> Iterator[Kept]:
        """Every entry of a map that can be read."""
        for path in sorted((self.root / name).glob("*/*.json")):
            kept = self.read(name, f"sha256:{path.stem}")
            if kept is not None:
                yield kept


def differing(key: Mapping[str, Any], other: Mapping[str, Any]) -> Sequence[str]:
    """The parts in which two keys of a map differ, such as `seed` and `inputs.X`."""
    a, b = _leaves(key), _leaves(other)
    return [path for path in sorted({*a, *b}) if a.get(path) != b.get(path)]


def _leaves(tree: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(tree, Mapping):
        return {path: tree}
    rows = (_leaves(v, f"{path}.{k}" if path else str(k)) for k, v in tree.items())
    return {k: v for row in rows for k, v in row.items()}
