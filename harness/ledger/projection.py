"""What MLflow shows of a record: params and metrics, each a function of the document."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from harness.identity import canonical, digest
from harness.ledger.record import MAIN, Document

PARAM_LIMIT = 6000
"""Characters that MLflow keeps of a param."""


@functools.lru_cache(maxsize=4096)
def key(name: str) -> str:
    """A name as MLflow accepts it: letters, digits, `_ - . space : /`, no empty or dotted part."""
    name = re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)
    return "/".join(part if part.strip(".") else "_" for part in name.split("/"))[:250]


def params(document: Document) -> dict[str, str]:
    """Every leaf of the exact part but costs, the caller's own, and the digests."""
    exact = {name: value for name, value in document.exact.items() if name != "c"}
    flat, own = _flat(exact), _flat(document.sealed.get("params", {}))
    if twice := sorted(set(flat) & set(own)):
        raise ValueError(f"the params {twice} are names of a record's own fields; rename them")
    return _distinct(flat | own) | {
        "ledger.schema": document.schema,
        "ledger.index": str(document.n),
        "ledger.branch": document.branch,
        "ledger.identity": document.identity,
        "ledger.seal": document.seal,
    }


def metrics(document: Document) -> dict[str, float]:
    """The caller's metrics, the decision, the cost of the round, and of the chain up to it what it
    has cost and what was avoided."""
    if "genesis" in document.exact:
        return {}
    cost = {**document.exact["c"], **document.sealed.get("metered", {})}
    named = {
        **document.sealed.get("metrics", {}),
        "decision/accepted": float(document.exact["d"] == "accept"),
        **{f"cost/{name}": value for name, value in cost.items()},
        **{f"cost_total/{name}": value for name, value in document.sealed["totals"].items()},
        **{f"cost_avoided/{k}": v for k, v in document.sealed.get("avoided", {}).items()},
    }
    return {name: float(value) for name, value in _distinct(named).items()}


def on_lineage(document: Document) -> dict[str, float]:
    """The same numbers as a point of the lineage's curves; a branch has curves of its own."""
    prefix = curve_prefix(document)
    return {prefix + name: value for name, value in metrics(document).items()}


def curve_prefix(document: Document) -> str:
    return "" if document.branch == MAIN else f"{document.branch}/"


def _distinct(named: Mapping[str, Any]) -> dict[str, Any]:
    spelt = {key(name): value for name, value in named.items()}
    if len(spelt) != len(named):
        raise ValueError(f"two of the names {sorted(named)} are one name in MLflow; rename one")
    return spelt


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        rows: dict[str, str] = {}
        for name, item in value.items():
            rows |= _flat(item, f"{path}.{name}" if path else str(name))
        return rows
    text = value if isinstance(value, str) else canonical(value).decode()
    return {path: text if len(text) <= PARAM_LIMIT else digest("param", text.encode())}
