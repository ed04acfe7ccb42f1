"""`verify`: does what the ledger says hold?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, lineages, opened, store_of

if TYPE_CHECKING:
    from harness.ledger.lineage import Lineage
    from harness.ledger.verify import Report
    from harness.store import Store


def main(
    lineage: Annotated[str, typer.Argument(help="Its name; all without one.")] = "",
    deep: Annotated[
        bool, typer.Option(help="Hash states and drive every episode again too, not a sample.")
    ] = False,
    against: Annotated[str, typer.Option(help="A file of published checkpoint lines.")] = "",
    store: Annotated[str, typer.Option(help="The root of the store, if it was moved.")] = "",
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Check bytes, chain, pointers, states, seeds, costs, content and pages of every record."""
    from harness.ledger.verify import verify

    if against and not Path(against).is_file():
        raise ValueError(f"--against {against} is no file; give one with lines that verify printed")
    lines = Path(against).read_text() if against else ""
    ledger = opened(uri, experiment)
    good = True
    for found in lineages(ledger, lineage):
        root = store_of(ledger, found, store)
        report = verify(found, root, deep=deep, against=lines)
        drive(found, root, report, deep)
        print(line(document(report))) if as_json else _show(report)
        good &= not report.problems
    raise typer.Exit(0 if good else 1)


def drive(lineage: Lineage, store: Store, report: Report, deep: bool) -> None:
    """Drive environments again with recorded actions, where the chain itself holds."""
    from harness.exactness.driven import of_lineage

    if report.problems:
        return
    forks = lineage.forks()
    begins = {branch: forks[branch].n + 1 if branch in forks else 0 for branch in report.heads}
    places = [(b, n) for b, head in report.heads.items() for n in range(begins[b], head.n + 1)]
    for item in of_lineage(lineage, store, places, deep):
        report.notes.append(item) if isinstance(item, str) else report.problems.append(item)


def document(report: Report) -> dict[str, Any]:
    """A report as one JSON object."""
    return {
        "lineage": report.lineage, "records": report.records,
        "problems": [vars(finding) for finding in report.problems], "notes": report.notes,
        "checkpoints": report.checkpoints(),
    }  # fmt: skip


def _show(report: Report) -> None:
    for finding in report.problems:
        print(finding)
    for note in report.notes:
        print(f"note: {note}")
    verdict = f"{len(report.problems)} problems" if report.problems else "all right"
    print(f"{report.lineage}: {report.records} records, {verdict}")
    for checkpoint in report.checkpoints():
        print(checkpoint)
