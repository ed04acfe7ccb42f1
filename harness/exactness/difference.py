"""What differs between two rounds, or between two lineages."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from harness.exactness.changes import flat, same
from harness.fingerprint import Source
from harness.ledger.entry import Entry
from harness.ledger.lineage import Lineage
from harness.store import Store

Pair = list[Any]
"""What is in the one, and what in the other; None where there is nothing."""
RESULTS = {"X": "X", "Z": "Z", "F": "F", "G": "Γ", "d": "decision"}


def pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Pair]:
    """Leaves that differ, by dotted path."""
    x, y = flat(a), flat(b)
    return {k: [x.get(k), y.get(k)] for k in dict.fromkeys([*x, *y]) if x.get(k) != y.get(k)}


def of_records(a: Entry, b: Entry, stores: tuple[Store, Store]) -> dict[str, Any]:
    """Every part in which two records differ; a part without a difference is empty."""
    x, y = a.document.exact, b.document.exact
    s, t = a.document.sealed, b.document.sealed
    versions = (
        {"T": x["T"], "υ": x["upsilon"], **x["v"]},
        {"T": y["T"], "υ": y["upsilon"], **y["v"]},
    )
    states = ("starting", "proposed", "resulting")
    return {
        "same": a.identity == b.identity,
        "config": _config(s, t),
        "versions": pairs(*versions),
        "fingerprints": pairs(s.get("fingerprints", {}), t.get("fingerprints", {})),
        "source": of_sources(s.get("source", ""), t.get("source", ""), stores),
        "stamp": pairs(x["nu"], y["nu"]),
        "seeds": pairs(x["omega"], y["omega"]),
        "results": {name: [x[k], y[k]] for k, name in RESULTS.items() if x[k] != y[k]},
        "states": pairs({k: x[k] for k in states}, {k: y[k] for k in states}),
        "metrics": pairs(_map(s, "metrics"), _map(t, "metrics")),
        "cost": pairs(x["c"], y["c"]),
        "metered": pairs(_map(s, "metered"), _map(t, "metered")),
        "platform": pairs(_map(s, "platform"), _map(t, "platform")),
        "flags": pairs(_map(s, "flags"), _map(t, "flags")),
    }  # fmt: skip


def _map(sealed: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    # names of metrics hold dots and slashes of their own: one level is all there is
    value: Mapping[str, Any] = sealed.get(name, {})
    return value


def _config(s: Mapping[str, Any], t: Mapping[str, Any]) -> dict[str, Pair]:
    return pairs(s.get("config", {}), t.get("config", {}))


def of_sources(a: str, b: str, stores: tuple[Store, Store]) -> dict[str, str]:
    """The unified diff of every file of two archived sources that is not the same.

    Empty where they are one, or where one of them is not in its store.
    """
    if not a or not b or a == b:
        return {}
    if not (stores[0].has("source", a) and stores[1].has("source", b)):
        return {}
    old = stores[0].get(Source, a, check=True).arrays
    new = stores[1].get(Source, b, check=True).arrays
    found = {}
    for name in sorted({*old, *new}):
        if not same(old, new, name):
            lines, again = _lines(old, name), _lines(new, name)
            diff = difflib.unified_diff(lines, again, f"a/{name}", f"b/{name}")
            found[name] = "".join(diff)
    return found


def _lines(files: Mapping[str, Any], name: str) -> list[str]:
    if name not in files:
        return []
    text: str = files[name].tobytes().decode(errors="replace")
    return text.splitlines(keepends=True)


def of_lineages(
    a: Lineage, b: Lineage, stores: tuple[Store, Store], branches: tuple[str, str]
) -> dict[str, Any]:
    """Genesis, the rounds of both side by side, the first that differs, and what it differs in."""
    x = [e for e in a.walk(branches[0]) if e.n >= 0]
    y = [e for e in b.walk(branches[1]) if e.n >= 0]
    both = list(zip(x, y, strict=False))
    first = next((i for i, (p, q) in enumerate(both) if p.identity != q.identity), None)
    rounds = [
        {
            "n": p.n, "same": p.identity == q.identity, "id": [p.identity, q.identity],
            "decision": [p.document.exact["d"], q.document.exact["d"]],
            "reward": [_reward(p), _reward(q)],
        }
        for p, q in both
    ]  # fmt: skip
    return {
        "same": first is None and len(x) == len(y),
        "genesis": pairs(a.genesis.document.exact, b.genesis.document.exact),
        "lengths": [len(x), len(y)], "first": first, "rounds": rounds,
        "difference": None if first is None else of_records(*both[first], stores),
    }  # fmt: skip


def _reward(entry: Entry) -> Any:
    return entry.document.sealed.get("metrics", {}).get("reward/mean")
