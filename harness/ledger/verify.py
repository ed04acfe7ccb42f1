"""Does a lineage hold? Bytes to digests, chain, pointers, states, seeds, costs, content, pages.

A *problem* is something that is not what the records say. A *note* is something that a crash may
leave and `repair` completes, or that was dropped on purpose: it alters nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.ledger import checks
from harness.ledger.checkpoint import Checkpoint, Published
from harness.ledger.checks import Finding, Place
from harness.ledger.content import Content
from harness.ledger.curves import Curves
from harness.ledger.entry import HEAD, MAIN, Entry, document_of, folder_of, successors
from harness.ledger.ledger import GENESIS, NAME
from harness.ledger.lineage import Lineage
from harness.ledger.merkle import Frontier, grown, root_of
from harness.ledger.reader import Reader
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
    trees: dict[str, Frontier] = field(default_factory=dict)
    """The Merkle tree over each branch up to its head."""

    def checkpoints(self) -> list[str]:
        """Lines to keep elsewhere: with them a rewritten history is found."""
        return [
            str(Checkpoint(branch, head.n, head.seal, root_of(self.trees[branch]), self.lineage))
            for branch, head in sorted(self.heads.items())
        ]


def verify(
    lineage: Lineage, store: Store | None = None, *, deep: bool = False, against: str = ""
) -> Report:
    """Check a whole lineage; `against` holds checkpoint lines and proofs that were published.

    Runs are read by pages and forgotten; of each record only its run's id is kept.
    """
    return _Verifier(lineage, store, deep, against).run()


@dataclass
class _Leg:
    """A record to visit: how it is reached, and the tree over what comes before it."""

    branch: str
    pointer: str
    n: int
    parent: Entry | None
    tree: Frontier


class _Verifier:
    def __init__(self, lineage: Lineage, store: Store | None, deep: bool, against: str) -> None:
        self.lineage = lineage
        self.report = Report(lineage.name)
        self.content = Content(store, deep)
        self.reader = Reader(lineage)
        self.curves = Curves(lineage)
        self.published = Published(lineage.name, against)
        self.genesis: Entry | None = None
        self.law: Any = None

    def run(self) -> Report:
        report, genesis = self.report, self.lineage.client.get_run(self.lineage.run)
        self._visit(f"{self.lineage.run}:{genesis.data.params.get(GENESIS)}")
        self._leftovers(genesis)
        report.problems += self.curves.problems()
        report.notes += self.curves.notes()
        report.problems += self.content.problems()
        report.problems += self.content.heads(report.heads.values())
        report.notes += self.content.notes()
        report.problems += self.published.problems()
        return report

    def _visit(self, pointer: str) -> None:
        """Every record that is reached, each with the branch and the parent it is reached by."""
        forks = self.lineage.forks()
        points = {fork.pointer for fork in forks.values()}
        waiting = [_Leg(MAIN, pointer, -1, None, ())]
        while waiting:
            leg = waiting.pop()
            entry = self._check(leg.branch, leg.pointer, leg.n, leg.parent)
            if entry is None:
                continue
            self.report.records += 1
            points.discard(entry.pointer)
            tree = grown(leg.tree, entry.seal)
            self.report.heads[leg.branch], self.report.trees[leg.branch] = entry, tree
            self.published.passing(leg.branch, leg.n, entry.seal, tree)
            for name, successor in entry.successors.items():
                fork = forks.get(name)
                if name != leg.branch and (fork is None or fork.pointer != entry.pointer):
                    self._problem(leg.n, f"ledger.next.{name}", "no such branch here", successor)
                waiting.append(_Leg(name, successor, leg.n + 1, entry, tree))
        for name, fork in forks.items():
            self.published.forked(name, fork)
            if fork.pointer in points:
                where = f"{self.lineage.name}@{fork.branch}@{fork.n}"
                self.report.problems.append(
                    Finding(where, f"ledger.fork.{name}", "a record of this lineage", fork.pointer)
                )

    def _check(self, branch: str, pointer: str, n: int, parent: Entry | None) -> Entry | None:
        where = (
            f"{self.lineage.name}@{n}" if branch == MAIN else f"{self.lineage.name}@{branch}@{n}"
        )
        run_id, _, seal = pointer.partition(":")
        if run_id.encode() in self.reader.given:
            found = Finding(
                where, "ledger.next." + branch, "a record not yet in the chain", pointer
            )
            self.report.problems.append(found)
            return None
        run = self.reader.run(run_id)
        if run is None:
            found = Finding(where, "run", f"the record {pointer}", "gone: its run is not there")
            self.report.problems.append(found)
            return None
        try:
            document = document_of(self.lineage.client, run, self.reader.record(run))
        except Broken as error:
            found = Finding(where, "record.json", f"the record sealed {seal}", str(error))
            self.report.problems.append(found)
            return None
        entry = Entry(run_id, document, successors(run))
        try:
            if self.genesis is None:
                self.genesis = entry
                self.law = checks.law_of(document.exact["genesis"]["seeds"]["law"])
            place = Place(
                where, branch, n, seal, run, entry, parent, self.genesis,
                folder_of(self.lineage.client, run), self.law,
            )  # fmt: skip
            for check in checks.ALL:
                self.report.problems += check(place)
            self.report.notes += checks.notes(place)
            self.content.add(place)
            self.curves.add(document, place.metrics)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            actual = f"parts of other shape ({type(error).__name__}: {error})"
            self.report.problems.append(Finding(where, "record.json", "a record", actual))
            return None
        return entry

    def _leftovers(self, genesis: Any) -> None:
        """Runs that say they are records, and hints that point past the chain."""
        for run_id, index in self.reader.rest().items():
            where = f"{self.lineage.name}@{index}"
            self.report.problems.append(Finding(
                where, f"run {run_id}", "a record that its parent points to",
                "marked as committed, but nothing points to it: the chain was cut",
            ))  # fmt: skip
        folder = folder_of(self.lineage.client, genesis)
        if folder != genesis.info.artifact_uri and folder.startswith("file:"):
            self.report.notes.append(
                f"{self.lineage.name}: its folder was moved; its artifacts are read beside the "
                f"database, MLflow's pages look in {genesis.info.artifact_uri}; repair tells them"
            )
        if genesis.data.params.get(NAME) != self.lineage.name:
            self.report.notes.append(f"{self.lineage.name}: its run has another name")
        for branch, head in self.report.heads.items():
            if genesis.data.tags.get(HEAD + branch, head.run) != head.run:
                self.report.notes.append(
                    f"{self.lineage.name}: the head hint of {branch} is stale; repair moves it"
                )

    def _problem(self, n: int, name: str, expected: str, actual: str) -> None:
        where = f"{self.lineage.name}@{n}"
        self.report.problems.append(Finding(where, name, expected, actual))
