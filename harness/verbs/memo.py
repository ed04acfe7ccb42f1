"""`memo`: why results of a round were found again, or were not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.verbs._ledger import Experiment, Json, Uri, line, opened, store_of

if TYPE_CHECKING:
    from harness.ledger.entry import Entry
    from harness.memo import Folder

PARTS = {
    "version.name": "another version of the map", "version.settings": "other settings of the map",
    "seed": "another seed", "stamp.a": "another model", "stamp.iota": "other inference settings",
    "environment.name": "another environment",
    "environment.settings": "other settings of the environment",
}  # fmt: skip
"""What differs between two keys, by their parts."""
INPUTS = {"model": "model", "optimizer": "optimizer state", "G": "Γ"}


def main(
    what: Annotated[str, typer.Argument(help="why")],
    address: Annotated[
        str, typer.Argument(help="A record, as in `show`; the newest head without one.")
    ] = "",
    store: Annotated[str, typer.Option(help="The root of the store, if it was moved.")] = "",
    as_json: Json = False,
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Say why results of a round were found in the memo, or were not, and what is kept of it now.

    Where nothing was kept of a key, the kept result that is nearest to it is named with what
    differs. `memo=off` runs rounds without the memo.
    """
    from harness.ledger import address as addresses

    if what != "why":
        raise ValueError(f"memo has no {what!r}; say `memo why ID`")
    ledger = opened(uri, experiment)
    lineage, entry = addresses.record(ledger, address)
    if entry.n < 0:
        raise ValueError(f"{lineage.name}@-1 is the genesis record; give a round, 0 or later")
    found = reasons(entry, _folder(entry, store_of(ledger, lineage, store)))
    where = "" if entry.branch == "main" else f"@{entry.branch}"
    name = f"{lineage.name}{where}@{entry.n}"
    if as_json:
        sealed = entry.document.sealed
        memo = sealed.get("memo") or {}
        whole = {"memo": bool(memo), "maps": found, "repaid": memo.get("repaid", {})}
        totals = {"avoided": sealed.get("avoided", {})}
        print(line({"round": name, "id": entry.identity, **whole, **totals}))
    else:
        _show(name, found)


def _folder(entry: Entry, store: Any) -> Folder | None:
    from harness.memo import Folder

    config = entry.document.sealed.get("config", {}).get("memo", {})
    root = config.get("root") if isinstance(config, Mapping) else None
    place = Path(root).expanduser() if root else store.beside("memo")
    return None if place is None else Folder(place)


def reasons(entry: Entry, folder: Folder | None) -> list[dict[str, Any]]:
    """By map: whether it was found, why, what was avoided, and what is kept of it now."""
    from harness.memo import SEED

    sealed = entry.document.sealed
    memo = sealed.get("memo")
    taken = sealed.get("exchange", {}).get("taken", [])
    rows = []
    for name in SEED:
        note = (memo or {}).get("maps", {}).get(name, {})
        row = {
            "map": name, "found": bool(note.get("found")), "of": note.get("of"),
            "checked": bool(note.get("checked")), "avoided": note.get("avoided", {}),
        }  # fmt: skip
        row["reason"] = _reason(name, note, memo, name in taken)
        if "differs" in note:
            row["differs"] = note["differs"]
        if folder is not None:
            row |= _now(name, entry, folder, row)
        rows.append(row)
    return rows


def _reason(name: str, note: Mapping[str, Any], memo: Any, taken: bool) -> str:
    from harness.finder import REASONS

    if taken:
        return "taken from the record that this one is a what-if of"
    if memo is None:
        return "the memo was off"
    if not note:
        return "nothing was noted of it"
    if not note["found"]:
        return str(REASONS.get(note["reason"], note["reason"]))
    if note.get("checked"):
        return f"found, as in {note['of']}, computed again to check it, and the same"
    return f"found: the same version, settings, code, inputs, seed and platform as {note['of']}"


def _now(name: str, entry: Entry, folder: Folder, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the memo holds of this key now; or, where a new one was computed, what is nearest."""
    from harness.memo import differing, digest_of, key_of

    document = entry.document
    if "engine" not in document.sealed.get("fingerprints", {}):
        return {"kept": False}
    key = key_of(name, document.exact, document.sealed)
    kept = folder.read(name, digest_of(key))
    now: dict[str, Any] = {"key": digest_of(key), "kept": kept is not None}
    if kept is not None:
        now["of_now"] = kept.of
        now["results"] = 1 + len(kept.others)
    if row["found"]:
        return now
    own = (document.sealed.get("memo") or {}).get("maps", {}).get(name, {}).get("reason") == "new"
    others = [other for other in folder.all(name) if digest_of(other.key) != now["key"]]
    if own and others:
        near = min(others, key=lambda other: len(differing(key, other.key)))
        parts = [_part(path) for path in differing(key, near.key)]
        now["nearest"] = {"of": near.of, "differs": list(dict.fromkeys(parts))}
    return now


def _part(path: str) -> str:
    """A part of a key in words."""
    head, _, rest = path.partition(".")
    if head == "inputs":
        return f"another {INPUTS.get(rest, rest)}"
    if head == "code":
        return f"other code or libraries behind {rest}"
    if head == "platform":
        return f"another platform ({rest})"
    return PARTS.get(path, path)


def _show(name: str, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(name), title_justify="left", box=None)
    for column in ("", "memo", "avoided", "why"):
        table.add_column(column)
    for row in rows:
        seconds = sum(v for k, v in row["avoided"].items() if k.startswith("seconds/"))
        why = row["reason"]
        if "nearest" in row:
            near = row["nearest"]
            why += f"; nearest is {near['of']}, with {', '.join(near['differs'])}"
        if row.get("results", 1) > 1:
            why += f"; it has {row['results']} results now"
        verdict = "[green]found[/]" if row["found"] else "not found"
        table.add_row(
            row["map"], verdict, f"{seconds:.2f} s" if row["avoided"] else "", escape(why)
        )
    Console(width=max(Console().width, 160), soft_wrap=True, highlight=False).print(table)
