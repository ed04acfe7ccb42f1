"""The lineage's curves against the records they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.ledger import projection
from harness.ledger.checks import Finding, same_number
from harness.ledger.entry import Entry
from harness.ledger.lineage import Lineage

Points = dict[str, dict[int, list[float]]]


def read(lineage: Lineage) -> Points:
    """Every point of every metric of a lineage run, by name and step."""
    points: Points = {}
    for name in lineage.client.get_run(lineage.run).data.metrics:
        steps = points.setdefault(name, {})
        for metric in lineage.client.get_metric_history(lineage.run, name):
            steps.setdefault(metric.step, []).append(metric.value)
    return points


def expected(entries: Sequence[Entry]) -> dict[str, dict[int, float]]:
    """What the curves should be."""
    curves: dict[str, dict[int, float]] = {}
    for entry in entries:
        for name, value in projection.on_lineage(entry.document).items():
            curves.setdefault(name, {})[entry.n] = value
    return curves


def problems(name: str, points: Points, entries: Sequence[Entry]) -> Iterator[Finding]:
    """Points that are not the record's."""
    want = expected(entries)
    for curve, steps in points.items():
        if curve.endswith(OUTSIDE):
            continue
        for n, values in steps.items():
            right = want.get(curve, {}).get(n)
            for value in values:
                if right is None or not same_number(right, value):
                    shown = "nothing" if right is None else str(right)
                    yield Finding(f"{name}@{n}", f"curve {curve}", shown, str(value))


def notes(name: str, points: Points, entries: Sequence[Entry]) -> Iterator[str]:
    """Points that a crash left out."""
    rounds = sorted({n for n, _ in missing(points, entries)})
    if rounds:
        yield f"{name}: the curves lack points of rounds {rounds}; repair adds them"


def missing(
    points: Mapping[str, Mapping[int, object]], entries: Sequence[Entry]
) -> set[tuple[int, str]]:
    return {
        (n, name)
        for name, steps in expected(entries).items()
        for n in steps
        if n not in points.get(name, {})
    }


OUTSIDE = "harness/seconds"
"""The curve that is measured after a commit, and stands in no record."""


def complete(lineage: Lineage, entry: Entry) -> None:
    """Add the points of a record that are not there, and no other."""
    lacking = {name for n, name in missing(read(lineage), [entry])}
    named = projection.on_lineage(entry.document)
    lineage.points(entry.n, {name: named[name] for name in lacking})
