"""The states of a lineage: kept by policy, read from the store, or made again and checked.

A state that is not in the store is computed again from the nearest stored ancestor by U over the
recorded Γ's, and every identifier is checked; that is only relied on where an executed re-run on
this platform gave the same identifiers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import identity
from harness.fingerprint import machine
from harness.ledger.entry import Entry
from harness.ledger.lineage import Lineage
from harness.policies.model import Model
from harness.round import Maps, Record, Seed, State
from harness.store import Store
from harness.update.engine import copied


@dataclass(frozen=True)
class States:
    """Where the states of a lineage come from."""

    lineage: Lineage
    store: Store
    initial: State
    maps: Maps
    resident: Any

    def at(self, entry: Entry) -> State:
        """(M, s) after a record: from the store, or by running U again from a stored ancestor."""
        wanted = entry.document.resulting
        path: list[Entry] = []
        chain = list(self._chain(entry))
        state = None
        for at in reversed(chain):
            state = self._stored(at.document.resulting)
            if state is not None:
                break
            path.append(at)
        if state is None:
            dropped = [
                why for kind, name in wanted.items() if (why := self.store.retired(kind, name))
            ]
            raise ValueError(
                f"the state of {self.lineage.name} after round {entry.n} was dropped on purpose "
                f"({dropped[0]})"
                if dropped
                else f"no state of {self.lineage.name} before round {entry.n} is in the store "
                f"{self.store.root}"
            )
        for at in reversed(path):
            state = self._recompute(state, at)
        assert state.exact() == dict(wanted)
        return state

    def _chain(self, entry: Entry) -> list[Entry]:
        chain = []
        for at in self.lineage.walk(entry.branch):
            chain.append(at)
            if at.seal == entry.seal:
                break
        return chain

    def _stored(self, ids: Mapping[str, str]) -> State | None:
        if dict(ids) == self.initial.exact():
            return self.initial
        if not all(self.store.has(kind, ids[kind]) for kind in ("model", "optimizer")):
            return None
        base = getattr(self.initial.model, "base", None)
        model = self.store.get(Model, ids["model"], check=True, held=base)
        return State(model, self.store.get("optimizer", ids["optimizer"], check=True))

    def _recompute(self, state: State, entry: Entry) -> State:
        exact = entry.document.exact
        if exact["resulting"] == state.exact():
            return state
        recorded = exact["v"]["U"]
        own = identity.Version.of(self.maps.U).exact()
        if recorded != own:
            raise ValueError(
                f"the state after round {entry.n} is not stored, and {own['name']} with these "
                "settings is not the updater that made it; give the settings it was run with"
            )
        why = self.store.retired("credit", exact["G"])
        if why is not None and not self.store.has("credit", exact["G"]):
            raise ValueError(
                f"the state after round {entry.n} is not stored, and the Γ that it would be "
                f"computed from was dropped on purpose ({why})"
            )
        credit = self.store.get("credit", exact["G"], check=True)
        made = self.maps.U(state, credit, Seed(exact["omega"]["update"])).state
        if made.exact() != exact["resulting"]:
            raise ValueError(
                f"the state after round {entry.n} came out as {made.model.id[:19]}…, recorded is "
                f"{exact['resulting']['model'][:19]}…; on this platform it cannot be recomputed"
            )
        return made

    def keep(self, state: State) -> None:
        """Store a state, durably."""
        self.store.put(state.model)  # type: ignore[arg-type]
        self.store.put(state.optimizer)  # type: ignore[arg-type]

    def certify(self, record: Record) -> bool:
        """Run U again from the same inputs, loaded afresh: may states be recomputed here?"""
        version = identity.Version.of(self.maps.U).exact()
        if (known := certified(self.store, version)) is not None:
            return known
        own = copied(record.starting)
        for cached in self.resident.caches.values():
            cached.forget()
        again = self.maps.U(own, record.G, record.seeds.update)
        same = again.state.exact() == record.proposal.state.exact()
        found = same and again.decision is record.proposal.decision
        note(self.store, version, found)
        return found


@dataclass
class Writer:
    """Stores a state beside what comes next, until what holds it is about to change."""

    written: Future[None] | None = None

    def begin(self, write: Callable[[], None]) -> None:
        self.wait()
        pool = ThreadPoolExecutor(1, "states")
        self.written = pool.submit(write)
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Until nothing is being written. Raises what the writing raised."""
        written, self.written = self.written, None
        if written is not None:
            written.result()


def certified(store: Store, version: Mapping[str, Any]) -> bool | None:
    """Whether an update of this version came out the same when it was run again on this platform;
    None where it was not."""
    path = _certificate(store, version)
    return bool(json.loads(path.read_text())["recomputable"]) if path.exists() else None


def note(store: Store, version: Mapping[str, Any], recomputable: bool) -> None:
    """Remember that, beside the store."""
    path = _certificate(store, version)
    path.parent.mkdir(parents=True, exist_ok=True)
    # whole or not at all: a process may be killed here
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"recomputable": recomputable}))
    draft.replace(path)


def _certificate(store: Store, version: Mapping[str, Any]) -> Path:
    key = identity.digest("certificate", identity.canonical([version, machine()]))
    return Path(store.root) / "certificates" / f"{key.removeprefix('sha256:')}.json"
