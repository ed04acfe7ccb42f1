"""`log`: the rounds of a lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, lineages, opened

if TYPE_CHECKING:
    from harness.ledger.attempt import Spent
    from harness.ledger.entry import Entry, Fork
    from harness.ledger.lineage import Lineage


def main(
    lineage: Annotated[str, typer.Argument(help="Its name; the newest without one.")] = "",
    branch: Annotated[str, typer.Option(help="The branch to follow.")] = "main",
    every: Annotated[bool, typer.Option("--all", help="Every lineage.")] = False,
    graph: Annotated[bool, typer.Option(help="Draw the branches.")] = False,
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """List the rounds of a lineage: what was decided, the reward, the cost, the identifiers."""
    ledger = opened(uri, experiment)
    for found in lineages(ledger, lineage) if every or lineage else lineages(ledger, "")[:1]:
        if graph:
            print("\n".join([found.name, *drawn(found)]))
            continue
        entries = [entry for entry in found.walk(branch) if entry.n >= 0]
        if as_json:
            for entry in entries:
                print(line(row(found, entry)))
        else:
            _show(found, branch, entries, found.attempts())


def row(lineage: Lineage, entry: Entry) -> dict[str, Any]:
    """A round as one JSON object."""
    exact, sealed = entry.document.exact, entry.document.sealed
    return {
        "lineage": lineage.name, "branch": entry.branch, "n": entry.n, "id": entry.identity,
        "parent": entry.document.parent, "seal": entry.seal, "decision": exact["d"],
        "reward_mean": sealed.get("metrics", {}).get("reward/mean"),
        "state_in": exact["starting"], "state_out": exact["resulting"],
        "proposed": exact["proposed"], "versions": exact["v"], "seeds": exact["omega"],
        "cost": {name: int(value) for name, value in exact["c"].items()},
        "metered": sealed.get("metered", {}), "avoided": avoided(sealed), "run": entry.run,
    }  # fmt: skip


def avoided(sealed: Any) -> dict[str, float]:
    """What of a round was found in the memo, and not spent."""
    notes = (sealed.get("memo") or {}).get("maps", {}).values()
    return {name: value for note in notes for name, value in note.get("avoided", {}).items()}


def drawn(lineage: Lineage) -> list[str]:
    """The records of all branches as a graph, the newest first, one column a branch."""
    forks = lineage.forks()
    own: dict[str, list[Entry]] = {}
    for branch in ("main", *forks):
        start = forks[branch].n if branch in forks else -2
        own[branch] = [entry for entry in lineage.walk(branch) if entry.n > start]
    columns = [branch for branch in own if own[branch]]
    lines = []
    for n in range(max(entries[-1].n for entries in own.values() if entries), -2, -1):
        for k, branch in enumerate(columns):
            entries = own[branch]
            if not entries[0].n <= n <= entries[-1].n:
                continue
            entry = entries[n - entries[0].n]
            lines.append(f"{_rails(columns, own, forks, n, k)}  {_said(entry)}")
        if leaving := [b for b in columns if b in forks and forks[b].n == n - 1]:
            lines.append(_joins(columns, own, forks, n, leaving))
    return [text.rstrip() for text in lines]


def _rails(
    columns: list[str], own: dict[str, list[Entry]], forks: dict[str, Fork], n: int, at: int
) -> str:
    """One mark a column: a record, a line that passes, or nothing."""
    marks = []
    for k, branch in enumerate(columns):
        first = forks[branch].n + 1 if branch in forks else -1
        passes = first <= n < own[branch][-1].n or (n == own[branch][-1].n and k < at)
        marks.append("*" if k == at else "|" if passes else " ")
    return " ".join(marks)


def _joins(
    columns: list[str], own: dict[str, list[Entry]], forks: dict[str, Fork], n: int,
    leaving: list[str],
) -> str:  # fmt: skip
    """The line under the first records of branches: back to where they left another."""
    marks = list(_rails(columns, own, forks, n, len(columns)))
    for branch, k in ((b, 2 * columns.index(b)) for b in leaving):
        home = 2 * columns.index(forks[branch].branch)
        marks[k] = " "
        for between in range(home + 1, k):
            marks[between] = "_" if marks[between] == " " else marks[between]
        marks[k - 1], marks[home] = "/", "|"
    return "".join(marks)


def _said(entry: Entry) -> str:
    exact = entry.document.exact
    what = exact.get("d", "genesis")
    tip = "" if entry.branch in entry.successors else f"  ({entry.branch})"
    return f"{entry.n:>4} {what:<7} {entry.identity[7:19]}{tip}"


def _show(
    lineage: Lineage, branch: str, entries: list[Entry], attempts: list[Spent]
) -> None:  # fmt: skip
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{lineage.name} ({branch})", title_justify="left", box=None)
    for name, justify in (
        ("n", "right"), ("decision", "left"), ("reward", "right"), ("seconds", "right"),
        ("avoided", "right"), ("identity", "left"), ("state after", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for entry in entries:
        exact, sealed = entry.document.exact, entry.document.sealed
        reward, seconds = sealed.get("metrics", {}).get("reward/mean"), _seconds(sealed)
        table.add_row(
            str(entry.n), exact["d"], _number(reward), _number(seconds),
            _number(_seconds({"metered": avoided(sealed)})), entry.identity[7:19],
            exact["resulting"]["model"][7:19], style=None if exact["d"] == "accept" else "yellow",
        )  # fmt: skip
    console = Console()
    console.print(table)
    for attempt in attempts:
        spent = ", ".join(f"{k} {v:g}" for k, v in sorted(attempt.cost.items())) or "nothing noted"
        state = "under way" if attempt.alive else attempt.state
        after = f" after {attempt.stage}" if attempt.stage else ""
        console.print(f"attempt at round {attempt.n} ({state}{after}): {spent}", style="dim")


def _seconds(sealed: Any) -> float | None:
    named = {k: v for k, v in sealed.get("metered", {}).items() if k.startswith("seconds")}
    return named.get("seconds", sum(named.values()) if named else None)


def _number(value: Any) -> str:
    return "" if value is None else f"{float(value):.3f}"
