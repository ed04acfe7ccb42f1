"""`gc`: drop what nothing names, states that can be computed again, and what has to go."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, lineages, opened, store_of

if TYPE_CHECKING:
    from harness.retention.plan import Plan

WHAT = ("trajectories", "states")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def main(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(help="Lineages; with --drop also records, as in `show`; all without one."),
    ] = None,
    every: Annotated[
        int, typer.Option(help="Keep of the states the first, the heads and every so many-th.")
    ] = 0,
    best: Annotated[
        bool, typer.Option("--best", help="Keep those, and the one that earned the most.")
    ] = False,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Run an update again where none was, to know that states can be computed again.",
        ),
    ] = False,
    drop: Annotated[
        str, typer.Option(help="trajectories or states: drop those of the records for good.")
    ] = "",
    reason: Annotated[str, typer.Option(help="With --drop: why, for whoever misses them.")] = "",
    grace: Annotated[
        str, typer.Option(help="Leave what nothing names if it is younger: 30m, 1h, 2d.")
    ] = "1h",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, it is only listed.")] = False,
    store: Annotated[str, typer.Option(help="The root of the store, if it was moved.")] = "",
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """List what can be dropped of the stored values and, with --yes, drop it. Records stay.

    Without more: values that no record, attempt or memo entry names, of the ledger's own store or
    the one of --store (which no other ledger may share). With --every or --best: states that can be
    computed again. With --drop: trajectories or states of records, for good, noted as dropped.
    """
    from harness.retention import plan as plans
    from harness.retention.policy import Policy
    from harness.store import Store

    seconds = _seconds(grace)
    if every < 0:
        raise ValueError(f"--every {every} keeps no rounds; it is 1 or more")
    if drop and drop not in WHAT:
        raise ValueError(f"--drop {drop} names nothing; it is trajectories or states")
    if drop and (every or best):
        raise ValueError("--drop and a policy (--every, --best) are two things; give one")
    if drop and not addresses:
        raise ValueError("--drop wants to be told of what; give lineages or records")
    if reason and not drop:
        raise ValueError("--reason is of --drop; leave it out")
    if certify and not (every or best):
        raise ValueError("--certify is for states; give --every or --best too")
    if addresses and not (drop or every or best):
        raise ValueError("what nothing names is of no lineage; give --every, --best or --drop")
    ledger = opened(uri, experiment)
    own = partial(store_of, ledger, root=store)
    if drop:
        plan = plans.parts(ledger, addresses or [], own, drop, reason or "asked for")
    elif every or best:
        chosen = [found for name in addresses or [""] for found in lineages(ledger, name)]
        plan = plans.states(ledger, chosen, own, Policy(every, best), certify)
    else:
        plan = plans.unnamed(ledger, Store(store or ledger.content_root), seconds)
    if yes:
        plan.run()
    print(line(plan.document(yes))) if as_json else _show(plan, yes)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise ValueError(f"--grace {text} is no time; give seconds, or 30m, 1h, 2d")
    return float(found[1]) * UNITS[found[2]]


def _show(plan: Plan, done: bool) -> None:
    """It as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console, rows = Console(soft_wrap=True, highlight=False), plan.rows()
    table = Table(box=None)
    for name in ("", "kind", "values", "bytes"):
        table.add_column(name, justify="right" if name in ("values", "bytes") else "left")
    for row in rows:
        table.add_row(row["why"], row["kind"], f"{row['values']:,}", f"{row['bytes']:,}")
    if rows:
        console.print(table)
    for note in plan.notes:
        console.print(escape(note))
    count, size = len(plan.values), sum(row["bytes"] for row in rows)
    said = f"{count:,} value{'s' * (count != 1)}, {size:,} bytes"
    if not count and not plan.parts:
        console.print("nothing to drop")
    else:
        console.print(f"dropped: {said}" if done else f"{said}; --yes drops them")
