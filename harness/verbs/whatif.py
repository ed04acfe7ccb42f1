"""`whatif`: a recorded round with some of its maps exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, opened, store_of

if TYPE_CHECKING:
    from harness.exactness.exchange import Exchange
    from harness.ledger.entry import Entry
    from harness.round import Record


def main(
    address: Annotated[str, typer.Argument(help="A record, as in `show`.")],
    words: Annotated[
        list[str], typer.Argument(help="What is exchanged: credit=rloo update.lr=3e-6 …")
    ],
    branch: Annotated[
        str, typer.Option(help="Append the round as the first of this new branch.")
    ] = "",
    store: Annotated[str, typer.Option(help="The root of the store, if it was moved.")] = "",
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Keep a round's seeds and the results before the exchanged map; run that map and what follows.

    Prints both rounds side by side. Nothing is appended without --branch.
    """
    from harness.exactness.exchange import exchange, exchanged
    from harness.exactness.recorded import Recorded, config_of
    from harness.exactness.spread import spread
    from harness.ledger import address as addresses

    ledger = opened(uri, experiment)
    lineage, entry = addresses.record(ledger, address)
    if branch:
        _free(lineage, branch)
    document = exchanged(config_of(entry), words)
    root = store_of(ledger, lineage, store)

    def run(world: Any) -> int:
        recorded = Recorded.open(
            ledger, lineage, entry, store=root, document=document, world=world
        )  # fmt: skip
        what = exchange(recorded)
        record, made = (_append(what, branch)) if branch else (what.run(), None)
        found = document_of(what, record, made)
        print(line(found)) if as_json else _show(found)
        return 0

    again = ["whatif", entry.seal, *words, "--uri", ledger.uri, "--experiment", experiment]
    again += ["--store", root.root, *(["--branch", branch] if branch else [])]
    again += ["--json"] if as_json else []
    flags = entry.document.sealed.get("flags", {})
    raise typer.Exit(spread(document, flags, lineage, root, again, run))


def _free(lineage: Any, branch: str) -> None:
    from harness.ledger.entry import branch_name

    branch_name(branch)
    if branch == "main" or branch in lineage.forks():
        raise ValueError(f"the branch {branch!r} is there already; choose another name")


def _append(what: Exchange, branch: str) -> tuple[Any, Entry]:
    """Run the round as the first of a branch, through the ledger."""
    import dataclasses

    from harness.console import View

    recorded = what.recorded
    session = recorded.session
    lineage = {**session.experiment.document["lineage"], "branch": branch}
    document = {**session.experiment.document, "lineage": lineage}
    session.experiment = dataclasses.replace(session.experiment, branch=branch, document=document)
    parent = recorded.parent
    drawn = session.experiment.law.draw(session.experiment.root, session.arm, recorded.entry.n)
    if drawn != recorded.seeds:
        raise ValueError(
            "the seed law does not draw the recorded seeds, so no branch can keep them"
        )
    note = {
        "exchange": {
            "of": recorded.entry.seal, "taken": list(what.kept), "exchanged": list(what.exchanged),
            "avoided": {
                name: value for name, value in recorded.sealed["readings"].items()
                if name.removeprefix("seconds/") in what.kept
            },
        }
    }  # fmt: skip
    held: list[Record] = []
    keep = session._keep_evidence

    def noting(record: Record, n: int) -> None:
        held.append(record)
        keep(record, n)

    session._keep_evidence = noting  # type: ignore[method-assign]
    view = View(recorded.lineage.name, branch, recorded.entry.n + 1, recorded.entry.n)
    entry, state = session.advance(parent, what.start(), view, given=what.given(), note=note)
    session.keep_head(state)
    return held[0], entry


def document_of(what: Exchange, record: Record, made: Entry | None) -> dict[str, Any]:
    """Both rounds as one JSON object."""
    recorded = what.recorded
    old = _recorded(what)
    new = _numbers(record.F, record.G) | {
        "decision": record.proposal.decision.value, "gates": record.proposal.report["gates"],
        "metrics": dict(record.proposal.report["metrics"]), "cost": dict(record.cost.computed),
        "X": record.X.id, "Z": record.Z.id, "F": record.F.id, "G": record.G.id,
        "proposed": record.proposal.state.exact(),
    }  # fmt: skip
    return {
        "round": recorded.name, "exchanged": list(what.exchanged), "kept": list(what.kept),
        "recorded": old, "whatif": _spelt(new),
        "branch": made
        and {"name": made.branch, "n": made.n, "id": made.identity, "seal": made.seal},
    }  # fmt: skip


def _recorded(what: Exchange) -> dict[str, Any]:
    from harness.exactness.recorded import Unavailable

    recorded = what.recorded
    exact, sealed = recorded.exact, recorded.sealed
    try:
        numbers = _numbers(recorded.value("F"), recorded.value("C"))
    except Unavailable:
        numbers = {}
    own = ("loss", "grad_norm", "policy/", "rollout/mismatch", "update/")
    return numbers | {
        "decision": exact["d"], "gates": sealed["report"]["gates"],
        "metrics": {k: v for k, v in sealed["metrics"].items() if k.startswith(own)},
        "cost": {name: int(text) for name, text in exact["c"].items()},
        "X": exact["X"], "Z": exact["Z"], "F": exact["F"], "G": exact["G"],
        "proposed": dict(exact["proposed"]),
    }  # fmt: skip


def _numbers(F: Any, G: Any) -> dict[str, Any]:
    """Statistics of feedback and credit."""
    import numpy as np

    rewards = F.rewards_B[np.isfinite(F.rewards_B)]
    kept = G.advantages_T[G.arrays["is_action"]].astype(np.float64)
    empty = not len(kept)
    return {
        "feedback": {
            "mean": float(rewards.mean()) if len(rewards) else 0.0,
            "std": float(rewards.std()) if len(rewards) else 0.0,
        },
        "credit": {
            "mean": 0.0 if empty else float(kept.mean()),
            "std": 0.0 if empty else float(kept.std()),
            "min": 0.0 if empty else float(kept.min()),
            "max": 0.0 if empty else float(kept.max()),
            "tokens with credit": int((kept != 0).sum()),
        },
    }


def _spelt(value: Any) -> Any:
    from harness.ledger.record import spelt

    return spelt(value)


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from harness.exactness.changes import flat

    kept = ", ".join(found["kept"]) or "nothing"
    title = f"{found['round']}: {', '.join(found['exchanged'])} exchanged, {kept} kept"
    table = Table(title=escape(title), title_justify="left", box=None)
    for name, justify in (("", "left"), ("recorded", "right"), ("what if", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    old, new = ({**found[k]} for k in ("recorded", "whatif"))
    for side in (old, new):
        side["gates"] = {g["name"]: "passed" if g["passed"] else "failed" for g in side["gates"]}
    a, b = flat(old), flat(new)
    for key in dict.fromkeys([*b, *a]):
        x, y = a.get(key), b.get(key)
        table.add_row(key, _cell(x), _cell(y), style="dim" if x == y else None)
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    if found["branch"]:
        b = found["branch"]
        console.print(f"appended as round {b['n']} of the branch {b['name']}: {b['id']}")
    else:
        console.print("nothing was appended; --branch NAME appends it")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    text = "" if value is None else str(value)
    return text[7:19] if text.startswith("sha256:") else text
