"""`show`: one record in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, opened

if TYPE_CHECKING:
    from harness.ledger.entry import Entry
    from harness.ledger.lineage import Lineage


def main(
    address: Annotated[
        str, typer.Argument(help="NAME, NAME@N, NAME@BRANCH@N, @N, or a prefix of an identifier.")
    ] = "",
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Show a record in full: what is exact, what is sealed, and where it is."""
    from harness.ledger import address as addresses

    ledger = opened(uri, experiment)
    lineage, entry = addresses.record(ledger, address)
    if as_json:
        print(line(whole(lineage, entry)))
    else:
        _show(whole(lineage, entry))


def whole(lineage: Lineage, entry: Entry) -> dict[str, Any]:
    """A record with its digests and its place."""
    document = entry.document
    return {
        "lineage": lineage.name, "branch": entry.branch, "n": entry.n, "id": entry.identity,
        "seal": entry.seal, "parent": document.parent, "parent_seal": document.parent_seal,
        "schema": document.schema, "exact": document.exact, "sealed": document.sealed,
        "successors": entry.successors, "run": entry.run,
    }  # fmt: skip


def _show(record: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.tree import Tree

    tree = Tree(f"[bold]{record['lineage']}@{record['branch']}@{record['n']}[/]")
    for name in ("id", "seal", "parent", "run"):
        tree.add(f"{name}  {record[name]}")
    for part in ("exact", "sealed"):
        _grow(tree.add(f"[bold]{part}[/]"), record[part])
    width = max(Console().width, 120)  # an identifier that is cut is of no use
    Console(width=width).print(tree)


def _grow(tree: Any, value: Any) -> None:
    from rich.markup import escape

    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        if isinstance(item, dict | list) and item:
            _grow(tree.add(escape(str(name))), item)
        else:
            tree.add(escape(f"{name}  {item}"))
