"""Checkpoint lines and proofs: what is kept elsewhere, so that a rewritten history is found.

    checkpoint BRANCH N SEAL ROOT NAME

ROOT is the Merkle root over the seals from the genesis to round N; lines without one are older, and
still hold. A proof is one JSON object on one line, with the checkpoint lines that it is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.ledger import merkle
from harness.ledger.checks import Finding
from harness.ledger.entry import Entry, Fork
from harness.ledger.lineage import Lineage
from harness.ledger.reader import seals
from harness.ledger.record import MAIN, Broken

DIGEST = r"sha256:[0-9a-f]{64}"
LINE = re.compile(rf"checkpoint ([a-z0-9-]+) (-1|\d{{1,15}}) (\S+) (?:({DIGEST}) )?(\S.*)")


@dataclass(frozen=True)
class Checkpoint:
    """A record, and the tree over everything up to it."""

    branch: str
    n: int
    seal: str
    root: str | None
    name: str

    def __str__(self) -> str:
        root = "" if self.root is None else f"{self.root} "
        return f"checkpoint {self.branch} {self.n} {self.seal} {root}{self.name}"

    @classmethod
    def parse(cls, line: str) -> Checkpoint:
        """Read a line. Raises ValueError where it is none."""
        if (found := LINE.fullmatch(line.strip())) is None:
            raise ValueError(f"{line!r} is no checkpoint line; verify prints such lines")
        branch, n, seal, root, name = found.groups()
        return cls(branch, int(n), seal, root, name)

    @property
    def size(self) -> int:
        """Leaves of the tree: the genesis is the first."""
        return self.n + 2


def prove(lineage: Lineage, entry: Entry, since: Checkpoint | None = None) -> dict[str, Any]:
    """That a record is under the root of its branch, or that an older root is within it.

    Raises Broken where the older one is not: the history was rewritten.
    """
    found = seals(lineage, entry.branch)
    leaves = [merkle.leaf(seal) for seal in found]
    root = merkle.PREFIX + merkle.root(leaves).hex()
    head = Checkpoint(entry.branch, len(found) - 2, found[-1], root, lineage.name)
    if since is None:
        if entry.n + 1 >= len(found) or found[entry.n + 1] != entry.seal:
            raise Broken(f"round {entry.n} is not on branch {entry.branch!r} as its parents say")
        return {
            "proof": "inclusion", "lineage": lineage.name, "branch": entry.branch, "n": entry.n,
            "seal": entry.seal, "checkpoint": str(head),
            "path": _hex(merkle.inclusion(leaves, entry.n + 1)),
        }  # fmt: skip
    if since.root is None:
        raise ValueError(f"{str(since)!r} has no root; give a line that verify printed with one")
    old = leaves[: since.size]
    if len(old) < since.size or merkle.PREFIX + merkle.root(old).hex() != since.root:
        raise Broken(
            f"the history of {lineage.name!r} up to round {since.n} is another than that of "
            f"{since.root}"
        )
    return {
        "proof": "consistency", "since": str(since), "checkpoint": str(head),
        "path": _hex(merkle.consistency(leaves, since.size)),
    }  # fmt: skip


def holds(proof: dict[str, Any]) -> bool:
    """Whether a proof leads where it says; for this no ledger is needed."""
    path = [merkle.unhex(digits) for digits in proof["path"]]
    head = Checkpoint.parse(proof["checkpoint"])
    if proof["proof"] == "inclusion":
        n, seal = int(proof["n"]), str(proof["seal"])
        return merkle.included(seal, n + 1, head.size, path, head.root or "")
    since = Checkpoint.parse(proof["since"])
    if proof["proof"] != "consistency" or since.root is None or head.root is None:
        return False
    return merkle.consistent(since.size, since.root, head.size, head.root, path)


class Published:
    """What was published of one lineage, held against the records as they pass."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.findings: list[Finding] = []
        self.wanted: list[Checkpoint] = []
        for line in text.splitlines():
            if line.strip():
                self.wanted += [c for c in self._read(line) if c.name == name]
        self._indices = {checkpoint.n for checkpoint in self.wanted}
        self._passed: dict[tuple[str, int], tuple[str, str]] = {}
        self._forks: dict[str, Fork] = {}

    def passing(self, branch: str, n: int, seal: str, tree: merkle.Frontier) -> None:
        """A record of the chain, in any order."""
        if n in self._indices:
            self._passed[branch, n] = seal, merkle.root_of(tree)

    def forked(self, branch: str, fork: Fork) -> None:
        self._forks[branch] = fork

    def problems(self) -> Iterator[Finding]:
        """After the walk: what was published and does not hold."""
        yield from self.findings
        for checkpoint in self.wanted:
            where = f"{self.name}@{checkpoint.branch}@{checkpoint.n}"
            seal, root = self._at(checkpoint.branch, checkpoint.n)
            if seal != checkpoint.seal:
                yield Finding(where, "checkpoint", checkpoint.seal, seal)
            elif checkpoint.root is not None and root != checkpoint.root:
                yield Finding(where, "checkpoint root", checkpoint.root, root)

    def _at(self, branch: str, n: int) -> tuple[str, str]:
        for _ in range(len(self._forks) + 1):
            if branch == MAIN or (branch, n) in self._passed or branch not in self._forks:
                break
            branch = self._forks[branch].branch
        return self._passed.get((branch, n), ("no such record", ""))

    def _read(self, line: str) -> list[Checkpoint]:
        if not line.lstrip().startswith("{"):
            return [Checkpoint.parse(line)]
        try:
            proof = json.loads(line)
            good, head = holds(proof), Checkpoint.parse(proof["checkpoint"])
            if proof["proof"] != "inclusion":
                own = [Checkpoint.parse(proof["since"]), head]
            else:
                own = [Checkpoint(str(proof["branch"]), int(proof["n"]), str(proof["seal"]), None,
                                  str(proof["lineage"])), head]  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            shown = line if len(line) < 200 else line[:200] + "…"
            raise ValueError(f"{shown!r} is no proof; `prove` prints such lines") from error
        if not good and head.name == self.name:
            where = f"{head.name}@{head.branch}@{head.n}"
            self.findings.append(
                Finding(where, f"proof of {proof['proof']}", f"a path to {head.root}", "another")
            )
        return own


def _hex(path: Sequence[bytes]) -> list[str]:
    return [digest.hex() for digest in path]
