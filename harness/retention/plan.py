"""What a collection of garbage is to drop: listed first, then done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.identity import canonical
from harness.ledger import address
from harness.ledger.bundle import entries, identifiers
from harness.ledger.ledger import Ledger
from harness.ledger.lineage import Lineage
from harness.retention import drops
from harness.retention.drops import Part, part, stranded
from harness.retention.holdings import everywhere, orphans
from harness.retention.policy import Certified, Policy, surplus
from harness.states import certified, note
from harness.store import Store

StoreOf = Callable[[Lineage], Store]
"""The store of a lineage."""


@dataclass(frozen=True)
class Doomed:
    """A value that goes."""

    kind: str
    identifier: str
    size: int
    why: str


@dataclass
class Plan:
    """What goes, of one store each, and what is to be said of it."""

    values: list[tuple[Store, Doomed]] = field(default_factory=list)
    parts: list[tuple[Store, Part]] = field(default_factory=list)
    reason: str = ""
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Drop it."""
        began = time.time()
        for store in {store.root: store for store, _ in self.parts}.values():
            own = [part for at, part in self.parts if at.root == store.root]
            if forgotten := drops.drop(own, store, self.reason):
                self.notes.append(f"{forgotten} memo entries that named them went too")
        for store, value in () if self.parts else self.values:
            # one that was put again meanwhile is in use
            if _touched(store, value) < began:
                store.delete(value.kind, value.identifier)

    def rows(self) -> list[dict[str, Any]]:
        """By why and kind: how many values, and how many bytes."""
        found: dict[tuple[str, str], list[int]] = {}
        for _, value in self.values:
            found.setdefault((value.why, value.kind), []).append(value.size)
        return [
            {"why": why, "kind": kind, "values": len(sizes), "bytes": sum(sizes)}
            for (why, kind), sizes in sorted(found.items())
        ]

    def document(self, done: bool) -> dict[str, Any]:
        """It as one JSON object."""
        rows = self.rows()
        return {
            "done": done, "rows": rows, "bytes": sum(row["bytes"] for row in rows),
            "identifiers": [value.identifier for _, value in self.values], "notes": self.notes,
        }  # fmt: skip


def _touched(store: Store, value: Doomed) -> float:
    """When a value was last put; 0 where the store does not tell, or it is gone."""
    if store.beside("") is None:
        return 0.0
    try:
        with store.path(value.kind, value.identifier) as path:
            return path.stat().st_mtime
    except (KeyError, FileNotFoundError):
        return 0.0


def unnamed(ledger: Ledger, store: Store, grace: float) -> Plan:
    """Values that nothing names, so many seconds old."""
    found = orphans(ledger, store, grace)
    return Plan([(store, Doomed(v.kind, v.identifier, v.size, "nothing names it")) for v in found])


def states(
    ledger: Ledger, chosen: list[Lineage], store_of: StoreOf, policy: Policy, certify: bool
) -> Plan:
    """States of lineages that the policy does not keep, and that no other lineage names.

    certify: an update of a version that was not run again here is.
    """
    runs = {lineage.run for lineage in chosen}
    kept, plan = set[str](), Plan()
    for lineage in everywhere(ledger):
        for entry in entries(lineage):
            document = entry.document
            parts = [document.sealed.get("config", {})]
            if lineage.run not in runs:
                parts += [document.exact, document.sealed]
            kept |= set(identifiers(parts))
    found: dict[tuple[str, str], Store] = {}
    for lineage in chosen:
        store = store_of(lineage)
        again = _certified(ledger, lineage, store, certify)
        stays, loose, stuck = surplus(lineage, store, policy, again)
        kept |= {name for _, name in stays}
        found |= dict.fromkeys(loose, store)
        if stuck:
            plan.notes.append(
                f"{lineage.name}: {stuck} states stay, since they cannot be computed again: their "
                "Γ is gone, U changed on the way, or was not seen to give the same state here"
                + ("" if certify else " (--certify runs one again)")
            )
    for (kind, name), store in sorted(found.items()):
        if name not in kept and (size := store.size(kind, name)):
            plan.values.append((store, Doomed(kind, name, size, "can be computed again")))
    return plan


def _certified(ledger: Ledger, lineage: Lineage, store: Store, run: bool) -> Certified:
    """Tells whether an update of a version gave the same again here; runs one if it may."""

    def tried(version: Mapping[str, Any]) -> bool:
        known = certified(store, version)
        if known is not None or not run:
            return bool(known)
        from harness.exactness.recorded import Recorded
        from harness.exactness.replay import replay

        own = [e for e in entries(lineage) if e.n >= 0 and e.document.exact["v"]["U"] == version]
        # one that was accepted, and late: where most of a lineage's state has been at work
        entry = max(own, key=lambda e: (e.document.exact["d"] == "accept", e.n))
        same = replay(Recorded.open(ledger, lineage, entry, store=store), "U").good
        note(store, version, same)
        return same

    cache: dict[bytes, bool] = {}

    def known(version: Mapping[str, Any]) -> bool:
        key = canonical(version)
        if key not in cache:
            cache[key] = tried(version)
        return cache[key]

    return known


def parts(
    ledger: Ledger, names: list[str], store_of: StoreOf, what: str, reason: str
) -> Plan:  # fmt: skip
    """The `trajectories` or `states` of lineages and records, for good. ValueError where a head
    could then not be gone on from, though its state is not what is to go."""
    plan = Plan(reason=f"{reason}, {time.strftime('%Y-%m-%d', time.gmtime())}")
    for name in names:
        if (whole := ledger.find(name)) is not None:
            store = store_of(whole)
            plan.parts += [(store, part(whole, entry, what)) for entry in entries(whole)]
        else:
            lineage, entry = address.record(ledger, name)
            plan.parts.append((store_of(lineage), part(lineage, entry, what)))
    gone: dict[tuple[str, str], Store] = {}
    for store, each in plan.parts:
        gone |= dict.fromkeys(each.values.values(), store)
    for store in {store.root: store for store in gone.values()}.values():
        own = [each for at, each in plan.parts if at.root == store.root]
        if what == "trajectories" and (heads := list(stranded(own, store))):
            raise ValueError(
                f"the state of {', '.join(heads)} is not stored and would be computed from the Γ "
                "that is to be dropped; run a round more, which stores it, or name other records"
            )
    for (kind, identifier), store in sorted(gone.items()):
        if size := store.size(kind, identifier):
            plan.values.append((store, Doomed(kind, identifier, size, "asked for")))
    plan.notes += _losses([each for _, each in plan.parts], what)
    own_runs = {each.entry.run for _, each in plan.parts}
    names_gone = {identifier for _, identifier in gone}
    others = [
        f"{lineage.name}@{entry.branch}@{entry.n}"
        for lineage in everywhere(ledger) for entry in entries(lineage)
        if entry.run not in own_runs and names_gone & set(identifiers(entry.document.exact))
    ]  # fmt: skip
    if others:
        plan.notes.append(f"also named by {_some(others)}")
    return plan


def _losses(gone: Iterable[Part], what: str) -> list[str]:
    """What cannot be had again."""
    names = _some([part.name for part in gone if part.values])
    if not names:
        return ["these records have none"]
    if what == "trajectories":
        return [
            f"of {names}: F, C and U can no longer be replayed alone, no trajectory can be looked "
            "at, and states that are not stored can no longer be computed; the whole round can be "
            "replayed from its starting state and its seeds"
        ]
    return [
        f"of {names}: R and U of the rounds after them can no longer be replayed, and nothing goes "
        "on from there, but where U gives the state again: its Γ is of the trajectories"
    ]


def _some(names: list[str]) -> str:
    rest = len(names) - 6
    return ", ".join(names[:6]) + (f" and {rest} more" if rest > 0 else "")
