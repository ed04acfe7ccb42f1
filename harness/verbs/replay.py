"""`replay`: run a recorded round again, and compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, opened, store_of

if TYPE_CHECKING:
    from harness.exactness.recorded import Recorded
    from harness.exactness.replay import Replayed, Row

NAMES = {
    "ω": "seeds", "S": "task sampler", "R": "rollout", "F": "feedback", "C": "credit",
    "U": "update", "A": "accounting", "r": "whole record",
}  # fmt: skip
COLORS = {"same": "green", "open": "yellow"}


def main(
    address: Annotated[
        str, typer.Argument(help="A record, as in `show`; the newest head without one.")
    ] = "",
    stage: Annotated[str, typer.Option(help="Only this stage: S, R, F, C, U or A.")] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Every round; ADDRESS is the name of a lineage.")
    ] = False,
    branch: Annotated[str, typer.Option(help="With --all: the branch to follow.")] = "main",
    recorded_code: Annotated[
        bool, typer.Option("--recorded-code", help="Run the source that the record archived.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="With --recorded-code: also where a bundle brought it.")
    ] = False,
    store: Annotated[str, typer.Option(help="The root of the store, if it was moved.")] = "",
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Run recorded rounds again from their inputs and seeds; 1 where anything comes out different.

    Each stage runs on the recorded results of those before it: a verdict is of that stage alone.
    """
    from harness.ledger import address as addresses

    if stage and (len(stage) > 1 or stage not in "SRFCUA"):
        raise ValueError(f"--stage {stage} is no stage; it is S, R, F, C, U or A")
    if every and recorded_code:
        raise ValueError("--recorded-code is of one record; leave --all out")
    ledger = opened(uri, experiment)
    if every:
        good = _all(ledger, address, branch, store, stage, as_json, experiment)
        raise typer.Exit(0 if good else 1)
    lineage, entry = addresses.record(ledger, address)
    root = store_of(ledger, lineage, store)
    if recorded_code:
        from harness.exactness.source import run_recorded
        from harness.ledger.taking import imported

        if imported(lineage) and not trust:
            raise ValueError(
                f"{lineage.name} came with a bundle, and --recorded-code would run the source in "
                "it; give --trust too if you trust whoever made the bundle"
            )
        words = _words(ledger, entry, root, experiment, stage, as_json)
        raise typer.Exit(run_recorded(root, entry, words))
    raise typer.Exit(_one(ledger, lineage, entry, root, experiment, stage, as_json))


def _words(
    ledger: Any, entry: Any, store: Any, experiment: str, stage: str, as_json: bool
) -> list[str]:
    """The command that replays one record."""
    options = {"--uri": ledger.uri, "--experiment": experiment, "--stage": stage}
    words = [w for pair in options.items() if pair[1] for w in pair]
    return ["replay", entry.seal, *words, "--store", store.root, *(["--json"] if as_json else [])]


def _one(
    ledger: Any, lineage: Any, entry: Any, store: Any, experiment: str, stage: str, as_json: bool
) -> int:
    """Replay one record on as many ranks as made it; the exit code."""
    from harness.exactness.recorded import Recorded, config_of
    from harness.exactness.replay import replay
    from harness.exactness.spread import spread

    def run(world: Any) -> int:
        recorded = Recorded.open(ledger, lineage, entry, store=store, world=world)
        found = replay(recorded, stage or "SRFCUA")
        print(line(document(recorded, found))) if as_json else _show(recorded, found)
        return 0 if found.good else 1

    words = _words(ledger, entry, store, experiment, stage, as_json)
    flags = entry.document.sealed.get("flags", {})
    return spread(config_of(entry), flags, lineage, store, words, run)


def document(recorded: Recorded, found: Replayed) -> dict[str, Any]:
    """A replay as one JSON object."""
    from harness.exactness.changes import changes

    first = found.first
    return {
        "round": found.name, "id": found.identity, "same": found.good, "open": found.open,
        "first": first and first.stage, "stages": [_row(row) for row in found.rows],
        "changes": changes(recorded),
    }  # fmt: skip


def _row(row: Row) -> dict[str, Any]:
    where = row.divergence
    named = None if where is None else {k: v for k, v in vars(where).items() if k != "stage"}
    return {
        "stage": row.stage, "verdict": row.verdict, "recorded": row.recorded,
        "replayed": row.replayed, "divergence": named, "reason": row.reason,
    }  # fmt: skip


def _show(recorded: Recorded, found: Replayed) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from harness.exactness.changes import changes

    kind = f"open: {len(found.open)} inputs from outside, taken as recorded" if found.open else ""
    table = Table(title=f"{found.name}  {kind}", title_justify="left", box=None)
    for name in ("", "stage", "verdict", "recorded", "replayed"):
        table.add_column(name)
    for row in found.rows:
        color = COLORS.get(row.verdict, "red")
        table.add_row(
            row.stage, NAMES[row.stage], f"[{color}]{row.verdict}[/]", _short(row.recorded),
            _short(row.replayed),
        )  # fmt: skip
    # an identifier that is folded cannot be compared
    console = Console(width=max(Console().width, 120), soft_wrap=True, highlight=False)
    console.print(table)
    for row in found.rows:
        if not row.good or row.reason:
            begin = "first to differ: " if row is found.first else ""
            console.print(
                escape(f"{begin}{row.stage}: {row.divergence or row.reason or row.verdict}")
            )
    for sentence in changes(recorded):
        console.print(escape(f"here: {sentence}"), style="dim" if found.good else None)
    if found.good:
        console.print("the same, bit for bit" if not found.open else "the same, given its inputs")


def _short(text: str) -> str:
    """Identifiers cut to what eyes can compare."""
    words = [w[7:19] if w.startswith("sha256:") else w for w in text.split()]
    return " ".join(words) if len(words) <= 3 else f"{len(words)} numbers"


def _all(
    ledger: Any, name: str, branch: str, store: str, stage: str, as_json: bool, experiment: str
) -> bool:
    """Replay a chain; whether all of it came out the same."""
    from harness.exactness.chain import replay_chain
    from harness.exactness.recorded import config_of
    from harness.exactness.spread import size_of
    from harness.ledger import address as addresses

    lineage = addresses.lineage(ledger, name)
    root = store_of(ledger, lineage, store)
    entries = [entry for entry in lineage.walk(branch) if entry.n >= 0]
    if any(size_of(config_of(entry)) > 1 for entry in entries):
        # ranks are started for one record at a time: another may want another number of them
        codes = [_one(ledger, lineage, e, root, experiment, stage, as_json) for e in entries]
        if not as_json:
            print(f"{lineage.name}: {codes.count(0)} of {len(codes)} rounds came out the same")
        return not any(codes)
    found: list[Replayed] = []
    pairs: Iterator[tuple[Recorded, Replayed]] = replay_chain(
        ledger, lineage, branch, root, stage or "SRFCUA"
    )
    for recorded, replayed in pairs:
        found.append(replayed)
        if as_json:
            print(line(document(recorded, replayed)), flush=True)
        elif not replayed.good and all(f.good for f in found[:-1]):
            _show(recorded, replayed)
    good = [f for f in found if f.good]
    if not as_json:
        _summary(lineage.name, found)
        opens = sum(bool(f.open) for f in found)
        tail = f", {opens} of them open" if opens else ""
        print(f"{lineage.name}: {len(good)} of {len(found)} rounds came out the same{tail}")
    return len(good) == len(found)


def _summary(name: str, found: list[Replayed]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    stages = list(dict.fromkeys(row.stage for f in found for row in f.rows))
    for column in ("n", *stages, "identity"):
        table.add_column(column)
    for f in found:
        verdicts = {row.stage: row for row in f.rows}
        cells = [
            f"[{COLORS.get(verdicts[s].verdict, 'red')}]{verdicts[s].verdict}[/]"
            if s in verdicts else ""
            for s in stages
        ]  # fmt: skip
        table.add_row(f.name.rpartition("@")[2], *cells, f.identity[7:19])
    Console(soft_wrap=True, highlight=False).print(table)
