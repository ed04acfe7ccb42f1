"""`export`: a lineage as one file, with its content."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.verbs._ledger import Experiment, Uri, opened, store_of


def main(
    lineage: Annotated[str, typer.Argument(help="Its name.")],
    file: Annotated[Path, typer.Argument(help="The file to write, which does not exist yet.")],
    store: Annotated[str, typer.Option(help="The root of the store, if it was moved.")] = "",
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Write the records of every branch, their pages, and the stored values that they name.

    The same lineage gives the same bytes. Attempts go along with what they had
    spent, and the reasons why values were dropped; names of runs and paths stay behind.
    """
    from harness.ledger import address
    from harness.ledger.bundle import export

    ledger = opened(uri, experiment)
    found = address.lineage(ledger, lineage)
    counts = export(found, store_of(ledger, found, store), file)
    typer.echo(f"{file}: {', '.join(f'{n} {what}' for what, n in counts.items())}")
