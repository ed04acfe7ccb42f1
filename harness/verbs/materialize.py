"""`materialize`: a recorded state as an ordinary Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.verbs._ledger import Experiment, Uri, opened


def main(
    address: Annotated[str, typer.Argument(help="The record after which the model is wanted.")],
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet, or is empty.")],
    uri: Uri = "",
    experiment: Experiment = "harness",
    adapter: Annotated[
        bool, typer.Option("--adapter", help="Only the adapter, as a folder that peft loads.")
    ] = False,
) -> None:
    """Write the model after a record as a folder that transformers and vLLM load.

    An adapter is merged into its base, or written alone with --adapter.
    A state that is not stored is computed again from the nearest stored ancestor, and its
    identifier is checked.
    """
    from harness.ledger import address as addresses
    from harness.policies.adapter import write_adapter
    from harness.policies.model import write_folder
    from harness.runner import reopen

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty; give a folder that does not exist yet")
    ledger = opened(uri, experiment)
    lineage, entry = addresses.record(ledger, address)
    state = reopen(ledger, lineage, entry).state_at(entry)
    if adapter:
        write_adapter(state.model, folder)
    else:
        write_folder(state.model, folder)  # type: ignore[arg-type]
    typer.echo(f"{state.model.id} in {folder}")
