"""Does a lineage hold? Bytes to digests, chain, pointers, states, seeds, costs, content, pages.

A *problem* is something that is not what the records say. A *note* is something that a crash may
leave and `repair` completes, or that was dropped on purpose: it alters nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.ledger import checks, curves
from harness.ledger.checks import Finding, Place
from harness.ledger.content import Content
from harness.ledger.entry import HEAD, MAIN, STATE, Entry, document_of, folder_of, successors
from harness.ledger.ledger import GENESIS, NAME
from harness.ledger.lineage import Lineage
from harness.ledger.record import Broken
from harness.store import Store


@dataclass
class Report:
    """What was found in a lineage."""

    lineage: str
    records: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heads: dict[str, Entry] = field(default_factory=dict)
    seals: dict[tuple[str, int], str] = field(default_factory=dict)

    def checkpoints(self) -> list[str]:
        """Lines to keep elsewhere: with them a rewritten history is found."""
        return [
            f"checkpoint {branch} {head.n} {head.seal} {self.lineage}"
            for branch, head in sorted(self.heads.items())
        ]


def verify(
    lineage: Lineage, store: Store | None = None, *, deep: bool = False, against: str = ""
) -> Report:
    """Check a whole lineage; `against` holds checkpoint lines that were published before."""
    return _Verifier(lineage, store, deep).run(against)


class _Verifier:
    def __init__(self, lineage: Lineage, store: Store | None, deep: bool) -> None:
        self.lineage = lineage
        self.report = Report(lineage.name)
        self.content = Content(store, deep)
        self.entries: dict[str, Entry] = {}
        self.known: dict[str, Any] = {run.info.run_id: run for run in self._runs()}

    def run(self, against: str) -> Report:
        genesis = self.lineage.client.get_run(self.lineage.run)
        self._visit(genesis, f"{self.lineage.run}:{genesis.data.params.get(GENESIS)}")
        self._leftovers(genesis)
        points, entries = curves.read(self.lineage), list(self.entries.values())
        self.report.problems += curves.problems(self.lineage.name, points, entries)
        self.report.notes += curves.notes(self.lineage.name, points, entries)
        self.report.problems += self.content.heads(self.report.heads.values())
        self.report.notes += self.content.notes()
        self._against(against)
        self.report.records = len(self.entries)
        return self.report

    def _visit(self, genesis: Any, pointer: str) -> None:
        """Every record that is reached, each with the branch and the parent it is reached by."""
        forks = self.lineage.forks()
        waiting: list[tuple[str, str, int, Entry | None]] = [(MAIN, pointer, -1, None)]
        while waiting:
            branch, pointer, n, parent = waiting.pop()
            entry = self._check(branch, pointer, n, parent)
            if entry is None:
                continue
            self.report.heads[branch] = entry
            self.report.seals[branch, n] = entry.seal
            for name, successor in entry.successors.items():
                known = name == branch or (name in forks and forks[name].pointer == entry.pointer)
                if not known:
                    self._problem(n, f"ledger.next.{name}", "no such branch here", successor)
                waiting.append((name, successor, n + 1, entry))
        for name, fork in forks.items():
            if fork.pointer not in {e.pointer for e in self.entries.values()}:
                where = f"{self.lineage.name}@{fork.branch}@{fork.n}"
                self.report.problems.append(
                    Finding(where, f"ledger.fork.{name}", "a record of this lineage", fork.pointer)
                )

    def _check(self, branch: str, pointer: str, n: int, parent: Entry | None) -> Entry | None:
        where = (
            f"{self.lineage.name}@{n}" if branch == MAIN else f"{self.lineage.name}@{branch}@{n}"
        )
        run_id, _, seal = pointer.partition(":")
        if run_id in self.entries:
            found = Finding(
                where, "ledger.next." + branch, "a record not yet in the chain", pointer
            )
            self.report.problems.append(found)
            return None
        run = self._get(run_id)
        if run is None:
            found = Finding(where, "run", f"the record {pointer}", "gone: its run is not there")
            self.report.problems.append(found)
            return None
        try:
            document = document_of(self.lineage.client, run)
        except Broken as error:
            found = Finding(where, "record.json", f"the record sealed {seal}", str(error))
            self.report.problems.append(found)
            return None
        entry = Entry(run_id, document, successors(run))
        self.entries[run_id] = entry
        place = Place(
            where, branch, n, seal, run, entry, parent, self._genesis(),
            folder_of(self.lineage.client, run),
        )  # fmt: skip
        for check in checks.ALL:
            self.report.problems += check(place)
        self.report.notes += checks.notes(place)
        self.report.problems += self.content.of(place)
        return entry

    def _genesis(self) -> Entry:
        return self.entries[self.lineage.run]

    def _leftovers(self, genesis: Any) -> None:
        """Runs that say they are records, and hints that point past the chain."""
        for run_id, run in self.known.items():
            if run_id not in self.entries and run.data.tags.get(STATE) == "committed":
                where = f"{self.lineage.name}@{run.data.params.get('ledger.index', '?')}"
                self.report.problems.append(Finding(
                    where, f"run {run_id}", "a record that its parent points to",
                    "marked as committed, but nothing points to it: the chain was cut",
                ))  # fmt: skip
        if genesis.data.params.get(NAME) != self.lineage.name:
            self.report.notes.append(f"{self.lineage.name}: its run has another name")
        for branch, head in self.report.heads.items():
            if genesis.data.tags.get(HEAD + branch, head.run) != head.run:
                self.report.notes.append(
                    f"{self.lineage.name}: the head hint of {branch} is stale; repair moves it"
                )

    def _against(self, lines: str) -> None:
        for line in lines.splitlines():
            match line.split(" ", 4):
                case ["checkpoint", branch, n, seal, name]:
                    if name != self.lineage.name:
                        continue
                    actual = self._sealed(branch, int(n))
                    if actual != seal:
                        where = f"{name}@{branch}@{n}"
                        self.report.problems.append(
                            Finding(where, "checkpoint", seal, actual or "no such record")
                        )
                case _:
                    if line.strip():
                        raise ValueError(
                            f"{line!r} is no checkpoint line; verify prints such lines"
                        )

    def _sealed(self, branch: str, n: int) -> str | None:
        while (branch, n) not in self.report.seals and branch != MAIN:
            fork = self.lineage.forks().get(branch)
            if fork is None:
                return None
            branch = fork.branch
        return self.report.seals.get((branch, n))

    def _problem(self, n: int, name: str, expected: str, actual: str) -> None:
        where = f"{self.lineage.name}@{n}"
        self.report.problems.append(Finding(where, name, expected, actual))

    def _get(self, run_id: str) -> Any:
        from mlflow.exceptions import MlflowException

        if run_id in self.known:
            return self.known[run_id]
        try:
            return self.lineage.client.get_run(run_id)
        except MlflowException:
            return None

    def _runs(self) -> Iterator[Any]:
        token = None
        while True:
            page = self.lineage.client.search_runs(
                [self.lineage.experiment], f"tags.\"mlflow.parentRunId\" = '{self.lineage.run}'",
                run_view_type=3, max_results=1000, page_token=token,
            )  # fmt: skip
            yield from page
            if (token := page.token) is None:
                return
