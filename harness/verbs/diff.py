"""`diff`: what differs between two rounds or two lineages."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, opened, store_of


def main(
    a: Annotated[str, typer.Argument(help="A record, or the name of a lineage.")],
    b: Annotated[str, typer.Argument(help="Another; two names compare whole lineages.")],
    source: Annotated[bool, typer.Option("--source", help="Print the diff of the source.")] = False,
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Show what differs: settings, versions and source, stamps, seeds, platform, results.

    The exit code is 0 where the identities are equal, and 1 where they are not.
    """
    from harness.exactness.difference import of_lineages, of_records
    from harness.ledger import address as addresses

    ledger = opened(uri, experiment)
    named = [ledger.find(text) if "@" not in text else None for text in (a, b)]
    if named[0] is not None and named[1] is not None:
        stores = (store_of(ledger, named[0]), store_of(ledger, named[1]))
        found = of_lineages(named[0], named[1], stores, ("main", "main"))
    else:
        records = [addresses.record(ledger, text) for text in (a, b)]
        for (_, entry), text in zip(records, (a, b), strict=True):
            if entry.n < 0:
                raise ValueError(f"{text} is a genesis record; compare rounds, or lineages by name")
        stores = (store_of(ledger, records[0][0]), store_of(ledger, records[1][0]))
        found = of_records(records[0][1], records[1][1], stores)
    if as_json:
        print(line(found))
    elif "rounds" in found:
        _lineages(found, a, b, source)
    else:
        _records(found, a, b, source)
    raise typer.Exit(0 if found["same"] else 1)


def _records(found: dict[str, Any], a: str, b: str, source: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False)
    if found["same"]:
        console.print("one identity: the same round, run again")
    table = Table(box=None)
    for name in ("", escape(a), escape(b)):
        table.add_column(name, overflow="fold")
    equal = []
    for part, rows in found.items():
        if part in ("same", "source"):
            continue
        if not rows:
            equal.append(part)
            continue
        table.add_row(f"[bold]{part}[/]")
        for key, (x, y) in rows.items():
            table.add_row(f"  {escape(key)}", _cell(x), _cell(y))
    console.print(table)
    if equal:
        console.print(f"equal: {', '.join(equal)}", style="dim")
    if found["source"]:
        console.print(f"[bold]source[/]  {', '.join(found['source'])}")
        if source:
            print("\n".join(found["source"].values()))
        else:
            console.print("--source prints the difference", style="dim")


def _lineages(found: dict[str, Any], a: str, b: str, source: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False)
    for key, (x, y) in found["genesis"].items():
        console.print(escape(f"{key}: {_cell(x)} | {_cell(y)}"))
    table = Table(box=None)
    for name in ("n", "same", "identity", "", "reward", ""):
        table.add_column(name, justify="right" if name == "n" else "left")
    for row in found["rounds"]:
        cells = [_cell(x) for pair in (row["id"], row["reward"]) for x in pair]
        table.add_row(str(row["n"]), "yes" if row["same"] else "no", *cells)
    console.print(table)
    if found["lengths"][0] != found["lengths"][1]:
        console.print(f"{a} has {found['lengths'][0]} rounds, {b} has {found['lengths'][1]}")
    if found["difference"] is not None:
        n = found["first"]
        console.print(f"the first round that differs is {n}:")
        _records(found["difference"], f"{a}@{n}", f"{b}@{n}", source)


def _cell(value: Any) -> str:
    from rich.markup import escape

    if isinstance(value, float):
        return f"{value:.6g}"
    text = "-" if value is None else str(value)
    return text[7:19] if text.startswith("sha256:") else escape(text)
