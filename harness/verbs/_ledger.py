"""What the verbs that read a ledger have in common: their options, and where its values lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from harness.ledger.ledger import Ledger
    from harness.ledger.lineage import Lineage
    from harness.store import Store

Uri = Annotated[
    str, typer.Option(help="Tracking URI; else MLFLOW_TRACKING_URI, else sqlite:///mlflow.db.")
]
Experiment = Annotated[str, typer.Option(help="The MLflow experiment of the project.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
STORE = "harness.store"
"""Tag of a lineage run: the root of the store that holds its values."""


def opened(uri: str, experiment: str) -> Ledger:
    """The ledger, which must be there."""
    from harness.ledger.ledger import Ledger

    return Ledger.open(uri or None, experiment, make=False)


def lineages(ledger: Ledger, name: str | None) -> list[Lineage]:
    """The named lineage, or all of them."""
    from harness.ledger import address

    if name:
        return [address.lineage(ledger, name)]
    return ledger.lineages() or [address.lineage(ledger, None)]


def store_of(ledger: Ledger, lineage: Lineage, root: str = "") -> Store:
    """The store of a lineage: asked for, tagged on its run, or the ledger's own; beside the
    database, where it was when the lineage began is no folder any more."""
    from harness.store import Store

    tagged = lineage.client.get_run(lineage.run).data.tags.get(STORE, "")
    gone = tagged and "://" not in tagged and not Path(tagged).is_dir()
    return Store(root or ("" if gone else tagged) or ledger.content_root)


def line(value: Any) -> str:
    """One JSON object on one line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=False)
