"""`prove`: that a record, or an older checkpoint, is in the history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.verbs._ledger import Experiment, Uri, line, opened


def main(
    address: Annotated[
        str, typer.Argument(help="NAME, NAME@N, NAME@BRANCH@N, @N, or a prefix of an identifier.")
    ],
    since: Annotated[
        str, typer.Option(help="A checkpoint line, or a file whose last line is one.")
    ] = "",
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Print a proof as one line of JSON; `verify --against` checks it, and so can anybody.

    Without --since, that the record is under the root of its branch; with it, that all of the older
    checkpoint's history is still there, unchanged and in order (RFC 9162).
    """
    from harness.ledger import address as addresses
    from harness.ledger.checkpoint import Checkpoint, prove

    older = None
    if since:
        text = Path(since).read_text() if Path(since).is_file() else since
        lines = text.strip().splitlines() or [""]
        older = Checkpoint.parse(lines[-1])
    found, entry = addresses.record(opened(uri, experiment), address)
    print(line(prove(found, entry, older)))
