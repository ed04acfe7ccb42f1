"""The values that records name: are they there, and are they what their names say?"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.ledger.bundle import header
from harness.ledger.checks import Finding, Place
from harness.ledger.entry import Entry
from harness.ledger.reader import READERS
from harness.store import Store

SMALL = {"X": "instance", "Z": "trajectories", "F": "feedback", "G": "credit"}
"""Fields of a record whose values are always stored, and their kinds."""
STATE = ("model", "optimizer")
WAITING = 1000
"""Records whose values wait to be checked at most."""
ABSENT = "nothing in the store"


@dataclass(frozen=True)
class _Value:
    """A value that a record names."""

    where: str
    name: str
    kind: str
    identifier: str
    whole: bool
    """Whether its content is hashed too."""
    needed: bool = True


class Content:
    """Checks values once each, however many records name them."""

    def __init__(self, store: Store | None, deep: bool) -> None:
        self.store = store
        self.deep = deep
        self.seen: set[str] = set()
        self.retired = 0
        self.absent = 0
        self.behind: set[str] = set()
        self._pool = ThreadPoolExecutor(READERS)
        self._pending: deque[Future[list[tuple[_Value, str]]]] = deque()
        self._problems: list[Finding] = []

    def add(self, at: Place) -> None:
        """A record: its small values, and the states that are stored."""
        if self.store is None:
            return
        exact, wanted = at.entry.document.exact, list[_Value]()
        if at.parent is None:
            state = exact["genesis"]["state"]
            wanted += [_Value(at.where, f"state.{k}", k, state[k], self.deep) for k in STATE]
            base = self._base(state["model"])
            if base is not None:
                wanted.append(_Value(at.where, "state.model's base", "model", base, self.deep))
        else:
            wanted += [_Value(at.where, n, k, exact[n], True) for n, k in SMALL.items()]
            state = exact["resulting"]
            wanted += [
                _Value(at.where, f"resulting.{k}", k, state[k], self.deep, needed=False)
                for k in STATE
            ]
        fresh = [value for value in wanted if value.identifier not in self.seen]
        self.seen |= {value.identifier for value in fresh}
        self._pending.append(self._pool.submit(self._check, fresh))
        if len(self._pending) > WAITING:
            self._collect(self._pending.popleft())

    def problems(self) -> list[Finding]:
        """Of all records that were added."""
        while self._pending:
            self._collect(self._pending.popleft())
        return self._problems

    def _base(self, model: str) -> str | None:
        """The identifier of what a model stands on, if it does."""
        assert self.store is not None
        if not self.store.has("model", model):
            return None
        with self.store.path("model", model) as path:
            try:
                return header(path)["meta"].get("base")
            # what cannot be read is told where the model itself is checked
            except (ValueError, KeyError, AttributeError, TypeError):
                return None

    def _check(self, values: list[_Value]) -> list[tuple[_Value, str]]:
        """What is wrong with values; empty where nothing is."""
        assert self.store is not None
        found = []
        for value in values:
            kind, identifier = value.kind, value.identifier
            if (self.store.check if value.whole else self.store.has)(kind, identifier):
                continue
            if self.store.has(kind, identifier):
                found.append((value, "other bytes under this name"))
            else:
                dropped = self.store.retired(kind, identifier) is not None
                found.append((value, "" if dropped else ABSENT))
        return found

    def _collect(self, done: Future[list[tuple[_Value, str]]]) -> None:
        for value, wrong in done.result():
            if not wrong:
                self.retired += 1
            elif wrong == ABSENT and not value.needed:
                self.absent += 1
            else:
                self._problems.append(
                    Finding(value.where, f"{value.name} content", value.identifier, wrong)
                )

    def heads(self, heads: Iterable[Entry]) -> Iterator[Finding]:
        """The state to go on from is stored, or one from which U was shown to compute it again."""
        if self.store is None:
            return
        for head in heads:
            for kind in STATE:
                identifier = head.document.resulting[kind]
                if self.store.has(kind, identifier):
                    continue
                if self.store.retired(kind, identifier) is not None:
                    continue
                if self.recomputable():
                    self.behind.add(head.branch)
                    continue
                yield Finding(f"head of {head.branch}", f"resulting.{kind}", identifier, ABSENT)

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
