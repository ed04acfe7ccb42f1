"""The lineage's curves against the records they show: one curve in memory at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

from harness.ledger import projection, rows
from harness.ledger.checks import Finding, same_number
from harness.ledger.lineage import Lineage
from harness.ledger.record import Document

OUTSIDE = "harness/seconds"
"""The curve that is measured after a commit, and stands in no record."""


class Curves:
    """What the curves should be, in sixteen bytes a point."""

    def __init__(self, lineage: Lineage) -> None:
        self.lineage = lineage
        self.missing: dict[int, set[str]] = {}
        """After `problems`: the curves that lack a round's point, by round."""
        self._expected: dict[str, tuple[array[int], array[float]]] = {}

    def add(self, document: Document, metrics: Mapping[str, float]) -> None:
        """A record whose points should be there, and what MLflow should show of it."""
        prefix = projection.curve_prefix(document)
        for name, value in metrics.items():
            if (points := self._expected.get(prefix + name)) is None:
                points = self._expected[prefix + name] = (array("q"), array("d"))
            points[0].append(document.n)
            points[1].append(value)

    def problems(self) -> Iterator[Finding]:
        """Points that are not the record's; each history is read once."""
        client, name = self.lineage.client, self.lineage.name
        shown = client.get_run(self.lineage.run).data.metrics
        for curve in {**shown, **self._expected}:
            if curve.endswith(OUTSIDE):
                continue
            want = dict(zip(*self._expected.get(curve, ((), ())), strict=True))
            there: set[int] = set()
            for step, value in rows.history(client, self.lineage.run, curve):
                there.add(step)
                right = want.get(step)
                if right != value and (right is None or not same_number(right, value)):
                    expected = "nothing" if right is None else str(right)
                    yield Finding(f"{name}@{step}", f"curve {curve}", expected, str(value))
            for n in want.keys() - there:
                self.missing.setdefault(n, set()).add(curve)

    def notes(self) -> Iterator[str]:
        """Points that a crash left out."""
        if self.missing:
            rounds = sorted(self.missing)
            name = self.lineage.name
            yield f"{name}: the curves lack points of rounds {rounds}; repair adds them"
