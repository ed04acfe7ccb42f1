"""What must hold of one record at its place. A check yields what does not."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.identity import Version, canonical, digest
from harness.ledger import files, projection, record
from harness.ledger.entry import FORK, NEXT, STATE, Entry, dropped

OWN = ("ledger.lineage", "ledger.parent_run", "ledger.name", "ledger.genesis")
"""Params that say where a record is, not what it is."""
HUGE = 1.7976931348623157e308
"""What MLflow keeps for infinity."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not what it should be."""

    record: str
    field: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.record}: {self.field}: expected {self.expected}, found {self.actual}"


@dataclass(frozen=True)
class Place:
    """A record and how it was reached."""

    where: str
    branch: str
    n: int
    seal: str
    run: Any
    entry: Entry
    parent: Entry | None
    genesis: Entry
    folder: str
    """Where the run's artifacts are."""
    law: Any
    """The declared seed law, None where this version of the program does not have it."""

    @functools.cached_property
    def metrics(self) -> dict[str, float]:
        """What MLflow should show of the record."""
        return projection.metrics(self.entry.document)

    def finding(self, name: str, expected: object, actual: object) -> Finding:
        return Finding(self.where, name, str(expected), str(actual))

    def equal(self, name: str, expected: object, actual: object) -> Iterator[Finding]:
        if expected != actual:
            yield self.finding(name, expected, actual)


Check = Callable[[Place], Iterator[Finding]]


def alive(at: Place) -> Iterator[Finding]:
    """The run is there and not deleted."""
    if at.run.info.lifecycle_stage != "active":
        restore = f"`mlflow runs restore --run-id {at.entry.run}`"
        yield at.finding("run", "active", f"deleted, but restorable: {restore}")


def digests(at: Place) -> Iterator[Finding]:
    """The bytes give the identity that was written once, and the seal that the parent points to."""
    params = at.run.data.params
    yield from at.equal("identity", params.get("ledger.identity"), at.entry.identity)
    yield from at.equal("seal", at.seal, at.entry.seal)
    sealed = params.get("ledger.seal")
    yield from at.equal("params.ledger.seal", at.seal, sealed)


def chain(at: Place) -> Iterator[Finding]:
    """The record names its parent, its index and its branch."""
    document, parent = at.entry.document, at.parent
    yield from at.equal("parent", parent and parent.identity, document.parent)
    yield from at.equal("parent_seal", parent and parent.seal, document.parent_seal)
    yield from at.equal("n", at.n, document.n)
    yield from at.equal("branch", at.branch, document.branch)


def states(at: Place) -> Iterator[Finding]:
    """A round starts where its parent ended, under its model's stamp; a reject keeps the state."""
    if at.parent is None:
        return
    exact = at.entry.document.exact
    yield from at.equal("starting", dict(at.parent.document.resulting), exact["starting"])
    yield from at.equal("nu.a", exact["starting"]["model"], exact["nu"]["a"])
    yield from at.equal("d", True, exact["d"] in ("accept", "reject"))
    kept = exact["proposed"] if exact["d"] == "accept" else exact["starting"]
    yield from at.equal("resulting", kept, exact["resulting"])


def seeds(at: Place) -> Iterator[Finding]:
    """The seeds are those of the declared law."""
    if at.parent is None:
        return
    declared = at.genesis.document.exact["genesis"]["seeds"]
    if at.law is not None:
        drawn = at.law.draw(declared["root"], declared["arm"], at.n).exact()
        yield from at.equal("omega", drawn, at.entry.document.exact["omega"])


def costs(at: Place) -> Iterator[Finding]:
    """Costs are finite, not negative, and sum along the chain."""
    if at.parent is None:
        return
    document = at.entry.document
    before = at.parent.document.sealed.get("totals", {})
    summed = record.totals(before, document.exact, document.sealed)
    yield from at.equal("totals", summed, document.sealed.get("totals"))
    saved = record.avoided(at.parent.document.sealed, document.sealed)
    yield from at.equal("avoided", saved, document.sealed.get("avoided", {}))
    for name, value in {**document.exact["c"], **document.sealed.get("metered", {})}.items():
        if not (math.isfinite(float(value)) and float(value) >= 0):
            yield at.finding(f"c.{name}", "finite and not negative", value)


def params(at: Place) -> Iterator[Finding]:
    """MLflow's params are the record's."""
    expected = projection.params(at.entry.document)
    shown = {
        k: v for k, v in at.run.data.params.items()
        if k not in OWN and not k.startswith((NEXT, FORK))
    }  # fmt: skip
    yield from _same(at, "params", expected, shown)


def metrics(at: Place) -> Iterator[Finding]:
    """The run's metrics are the record's."""
    if at.parent is not None:
        yield from _same(at, "metrics", at.metrics, at.run.data.metrics)


def pages(at: Place) -> Iterator[Finding]:
    """The run's other artifacts are those that were sealed."""
    for name, expected in at.entry.document.sealed.get("files", {}).items():
        data = files.read(at.folder, name)
        if data is None and name in dropped(at.run).get("files", []):
            continue
        actual = "nothing" if data is None else "sha256:" + hashlib.sha256(data).hexdigest()
        yield from at.equal(f"artifacts.{name}", expected, actual)


ALL: tuple[Check, ...] = (
    alive, digests, chain, states, seeds, costs, params, metrics, pages
)  # fmt: skip


def notes(at: Place) -> Iterator[str]:
    """What a crash may leave of a committed record."""
    if at.parent is None:
        return
    if at.run.data.tags.get(STATE) != "committed" or at.run.info.status != "FINISHED":
        yield f"{at.where}: committed, but shown as {at.run.info.status}; repair finishes it"
    if note := dropped(at.run):
        parts = ", ".join([*note.get("values", []), *note.get("files", [])])
        yield f"{at.where}: dropped on purpose: {parts} ({note.get('why', '')})"


def law_of(declared: Mapping[str, Any]) -> Any:
    """The seed law of a genesis record; None where this version of the program does not have it."""
    name = str(declared.get("map", "")).partition("@")[0]
    if not name.startswith("seeds."):
        return None
    try:
        module = importlib.import_module(f"harness.{name}")
    except ImportError:
        return None
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if cls.__module__ == module.__name__ and hasattr(cls, "draw"):
            law = cls(**{k: _tuples(v) for k, v in declared["settings"].items()})
            same = Version.of(law).settings == digest("settings", canonical(declared))
            return law if same else None
    return None


def same_number(expected: float, actual: float) -> bool:
    """Equal as MLflow keeps numbers."""
    if math.isnan(expected) or math.isnan(actual):
        return math.isnan(expected) and math.isnan(actual)
    return max(-HUGE, min(HUGE, expected)) == max(-HUGE, min(HUGE, actual))


def _same(
    at: Place, kind: str, expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> Iterator[Finding]:
    for name in sorted(expected.keys() | actual.keys()):
        want, have = expected.get(name), actual.get(name)
        if want == have:
            continue
        if isinstance(want, float) and isinstance(have, float) and same_number(want, have):
            continue
        absent = "nothing"
        yield at.finding(
            f"{kind}.{name}", absent if want is None else want, absent if have is None else have
        )


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
