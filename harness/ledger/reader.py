"""The runs of a lineage, a thousand at a time, in about the order in which its chain is walked."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from harness.ledger import files, rows
from harness.ledger.entry import MAIN, NEXT, STATE, folder_of
from harness.ledger.record import Broken

if TYPE_CHECKING:
    from harness.ledger.lineage import Lineage

PAGE = 1000
KEPT = 3 * PAGE
"""Runs in memory at most; one that is asked for later is read by itself."""
AHEAD = 2
"""Pages that are turned for one run before it is read by itself."""


READERS = 8
"""Records that are read at the same time: a disk and a server are waited for, not the processor."""


class Reader:
    """Gives runs by id, and reads their records ahead. What nobody asked for is remembered as a
    claim: its index and state."""

    def __init__(self, lineage: Lineage) -> None:
        self.lineage = lineage
        self.claims: dict[str, str] = {}
        """Runs under the lineage that say they are records and were not asked for yet; their index.
        """
        self.given: set[bytes] = set()
        self._kept: dict[str, Any] = {}
        self._pool = ThreadPoolExecutor(READERS)
        self._read: dict[str, Future[bytes | None]] = {}
        self._pages = rows.pages(lineage.client, lineage.experiment, lineage.run, PAGE)

    def run(self, run_id: str) -> Any:
        """A run, deleted or not; None where there is none."""
        for _ in range(AHEAD):
            if run_id in self._kept or not self._next():
                break
        self.given.add(run_id.encode())
        self.claims.pop(run_id, None)
        found = self._kept.pop(run_id, None)
        return self._alone(run_id) if found is None else found

    def record(self, run: Any) -> bytes | None:
        """The bytes of a run's record, None where it has none."""
        ahead = self._read.pop(run.info.run_id, None)
        return self._bytes(run) if ahead is None else ahead.result()

    def rest(self) -> dict[str, str]:
        """After the walk: every claim that nothing led to."""
        while self._next():
            pass
        return self.claims

    def _next(self) -> bool:
        page = next(self._pages, None)
        if page is None:
            return False
        for run in page:
            name = run.info.run_id
            if name.encode() in self.given:
                continue
            if run.data.tags.get(STATE) == "committed":
                self.claims[name] = run.data.params.get("ledger.index", "?")
                self._kept[name] = run
                self._read[name] = self._pool.submit(self._bytes, run)
        for name in list(self._kept)[: max(0, len(self._kept) - KEPT)]:
            del self._kept[name], self._read[name]
        return True

    def _bytes(self, run: Any) -> bytes | None:
        return files.read(folder_of(self.lineage.client, run), files.RECORD)

    def _alone(self, run_id: str) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return self.lineage.client.get_run(run_id)
        except MlflowException:
            return None


def seals(lineage: Lineage, branch: str = MAIN) -> list[str]:
    """The seals of a branch from the genesis to its head, by its pointers alone."""
    forks, legs = lineage.forks(), [(branch, "")]
    while legs[0][0] != MAIN:
        if (fork := forks.get(legs[0][0])) is None or len(legs) > len(forks):
            raise ValueError(
                f"the lineage {lineage.name!r} has no branch {branch!r}; it has {[MAIN, *forks]}"
            )
        legs = [(fork.branch, fork.pointer), *legs]
    reader, at = Reader(lineage), lineage.run
    run = reader.run(at)
    pointer = f"{at}:{run.data.params.get('ledger.genesis')}"
    found = [pointer.partition(":")[2]]
    for name, stop in legs:
        while pointer != stop and (successor := run.data.params.get(NEXT + name)) is not None:
            pointer = successor
            at, _, seal = pointer.partition(":")
            if (run := reader.run(at)) is None:
                raise Broken(f"the record {pointer} is gone: its run cannot be read")
            found.append(seal)
        if stop and pointer != stop:
            raise Broken(f"branch {name!r} does not hold the fork point {stop}")
    return found
