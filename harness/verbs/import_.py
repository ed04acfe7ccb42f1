"""`import`: a lineage from one file, verified before anything of it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.verbs._ledger import Experiment, Uri


def main(
    file: Annotated[Path, typer.Argument(help="A file that `export` wrote.")],
    name: Annotated[str, typer.Option(help="Its name here; the file's without one.")] = "",
    package: Annotated[
        list[str] | None, typer.Option(help="A package beside harness whose maps may be named.")
    ] = None,
    max_member: Annotated[int, typer.Option(help="MiB that one member may have.")] = 8192,
    max_total: Annotated[int, typer.Option(help="MiB that all members may have.")] = 65536,
    max_members: Annotated[int, typer.Option(help="How many members there may be.")] = 2_000_000,
    store: Annotated[str, typer.Option(help="The root of the store to fill.")] = "",
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Check every digest, identifier and link of a bundle, then append what is not here yet.

    A bundle is hostile until proven otherwise: nothing in it is run or unpickled, and a file of
    which one member is wrong is refused as a whole.
    """
    from harness.ledger.bundle import Limits
    from harness.ledger.imports import admit
    from harness.ledger.ledger import Ledger
    from harness.policies.tokenizer import identify
    from harness.store import Store

    if not file.is_file():
        raise ValueError(f"{file} is no file; give one that `export` wrote")
    limits = Limits(max_member << 20, max_total << 20, max_members)
    ledger = Ledger.open(uri or None, experiment)
    lineage, fresh = admit(
        ledger, Store(store or ledger.content_root), file, name, tuple(package or ()), limits,
        identify,
    )  # fmt: skip
    typer.echo(f"{lineage.name}: {fresh} records are new here, every digest holds")
