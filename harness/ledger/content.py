"""The values that records name: are they there, and are they what their names say?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.ledger.checks import Finding, Place
from harness.ledger.entry import Entry
from harness.store import Store

SMALL = {"X": "instance", "Z": "trajectories", "F": "feedback", "G": "credit"}
"""Fields of a record whose values are always stored, and their kinds."""
STATE = ("model", "optimizer")


class Content:
    """Checks values once each, however many records name them."""

    def __init__(self, store: Store | None, deep: bool) -> None:
        self.store = store
        self.deep = deep
        self.seen: set[str] = set()
        self.retired = 0
        self.absent = 0
        self.behind: set[str] = set()

    def of(self, at: Place) -> Iterator[Finding]:
        """The small values of a record, and the states that are stored."""
        if self.store is None:
            return
        exact = at.entry.document.exact
        if at.parent is None:
            for kind in STATE:
                state = exact["genesis"]["state"]
                yield from self._value(
                    at.where, f"state.{kind}", kind, state[kind], whole=self.deep
                )
            return
        for name, kind in SMALL.items():
            yield from self._value(at.where, name, kind, exact[name], whole=True)
        for kind in STATE:
            identifier = exact["resulting"][kind]
            if self.store.has(kind, identifier):
                name = f"resulting.{kind}"
                yield from self._value(at.where, name, kind, identifier, whole=self.deep)
            elif identifier not in self.seen:
                self.seen.add(identifier)
                self.absent += 1

    def heads(self, heads: Iterable[Entry]) -> Iterator[Finding]:
        """The state to go on from is stored, or one from which U was shown to compute it again."""
        if self.store is None:
            return
        for head in heads:
            for kind in STATE:
                identifier = head.document.resulting[kind]
                if self.store.has(kind, identifier) or self.store.retired(kind, identifier):
                    continue
                if self.recomputable():
                    self.behind.add(head.branch)
                    continue
                yield Finding(
                    f"head of {head.branch}", f"resulting.{kind}", identifier,
                    "nothing in the store",
                )  # fmt: skip

    def recomputable(self) -> bool:
        """Whether an executed re-run gave the same state, beside this store. A run that ends
        orderly stores its head; one that is killed leaves it to be computed from the last snapshot.
        """
        assert self.store is not None
        certificates = Path(self.store.root).glob("certificates/*.json")
        return any('"recomputable": true' in path.read_text() for path in certificates)

    def notes(self) -> Iterator[str]:
        if self.store is None:
            yield "no store was named, so the values that the records name were not looked at"
        if self.retired:
            yield f"{self.retired} values were dropped on purpose: they are known, not replayable"
        for branch in sorted(self.behind):
            yield f"the state of the head of {branch} is not stored: the next run computes it again"
        if self.absent:
            yield f"{self.absent} values of states between snapshots are not stored"

    def _value(
        self, where: str, name: str, kind: str, identifier: str, *, whole: bool
    ) -> Iterator[Finding]:
        assert self.store is not None
        if identifier in self.seen:
            return
        self.seen.add(identifier)
        if not self.store.has(kind, identifier):
            if self.store.retired(kind, identifier):
                self.retired += 1
            else:
                yield Finding(where, f"{name} content", identifier, "nothing in the store")
        elif whole and not self.store.check(kind, identifier):
            yield Finding(where, f"{name} content", identifier, "other bytes under this name")
