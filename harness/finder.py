"""The maps of a round, found again in the memo, or run and kept.

A find changes no identity: a value is read by its identifier and checked, and the computed cost is
that of the work. What was found and avoided, and why something was not found, are notes for the
record's seal. Every so many finds the map is run all the same; where it gives another result, that
one goes on, both are kept, and the map is called nondeterministic.

Only the rank that leads asks: the others wait to be called, and a map that is found calls nobody.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.fingerprint import flags, machine
from harness.identity import Version
from harness.memo import INPUTS, RESULT, Folder, Kept, Memo, digest_of, key_of, unseen
from harness.policies.model import Model
from harness.promise import Promise, kept, promised
from harness.round import Cost, Decision, Maps, Proposal, Seeds, Stamp, State
from harness.store import Corrupt, Store

NEW, QUICK, DISPUTED, GONE, OPEN, UNSPELT = "new", "quick", "disputed", "gone", "open", "unspelt"
REASONS = {
    NEW: "nothing was kept of this key",
    QUICK: "it took less than memo.from_seconds, so nothing is kept of it",
    DISPUTED: "the map is not deterministic: this key has had several results",
    GONE: "its result was no longer in the store",
    OPEN: "it read from outside of the round, so nothing is kept of it",
    UNSPELT: "its report has no spelling in JSON, so nothing is kept of it",
}
"""Why a result was not found; any other reason speaks for itself."""


@dataclass
class Memory:
    """The memo of a session."""

    memo: Memo
    folder: Folder
    store: Store
    maps: Maps
    task: Any
    environment: Any
    inference: Any
    fingerprints: Mapping[str, str]
    repaid: dict[str, float] = field(default_factory=dict)
    """What was avoided once and is spent after all, since the last record."""

    def __post_init__(self) -> None:
        maps = self.maps
        self.versions = {name: version.exact() for name, version in maps.versions().items()}
        self.upsilon = Version.of(self.environment).exact()
        things = {"S": (maps.S, self.task), "R": (maps.R, self.environment, self.inference),
                  "F": (maps.F,), "C": (maps.C,), "U": (maps.U,)}  # fmt: skip
        why = {name: unseen(*parts) for name, parts in things.items()}
        self.unseen = {name: reason for name, reason in why.items() if reason}
        self.work: Mapping[str, tuple[str, ...]] = getattr(type(maps.A), "work", {})

    def round(self, state: State, seeds: Seeds, name: str, say: Callable[[str], None]) -> Finder:
        """What finds the results of the round of this name."""
        stamp = Stamp(state.model.id, self.inference.id)
        exact = {
            "v": self.versions, "omega": seeds.exact(), "upsilon": self.upsilon,
            "nu": {"a": stamp.artifact, "iota": stamp.inference}, "starting": state.exact(),
        }  # fmt: skip
        sealed = {"fingerprints": self.fingerprints, "platform": machine(), "flags": flags()}
        return Finder(self, exact, sealed, state, seeds, name, say)

    def repay(self, cost: Mapping[str, float]) -> None:
        for dim, value in cost.items():
            self.repaid[dim] = self.repaid.get(dim, 0.0) + value


@dataclass
class Finder:
    """Finds what the maps of one round give; told each result, it knows the inputs of the next."""

    memory: Memory
    exact: dict[str, Any]
    """What is known of the record's exact part."""
    sealed: Mapping[str, Any]
    state: State
    seeds: Seeds
    name: str
    say: Callable[[str], None]
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By map, for the seal."""
    avoided: dict[str, float] = field(default_factory=dict)
    """Seconds that the work of the maps that were found had taken."""
    values: dict[str, Any] = field(default_factory=dict)

    def __call__(self, name: str, thunk: Callable[[], Any], /) -> Any:
        if name not in INPUTS:
            return thunk()
        if reason := self.memory.unseen.get(name):
            self.notes[name] = {"found": False, "reason": reason}
            value, _ = self._run(name, thunk)
        else:
            key = key_of(name, self.exact, self.sealed)
            note = self.notes[name] = {"found": False, "key": digest_of(key)}
            value = self._find(name, note, thunk)
            if value is None:
                value, seconds = self._run(name, thunk)
                self._keep(key, note, value, seconds)
        self.take(name, value)
        return value

    def take(self, name: str, value: Any) -> None:
        """Told the result of a map, however it came about."""
        self.values[name] = value
        if name in RESULT:
            self.exact[RESULT[name]] = value.id

    def close(self, cost: Cost) -> dict[str, Any]:
        """What goes under the seal: a note by map, and what was spent after all."""
        promise: Promise | None = getattr(self.values["U"].state.model, "promise", None)
        if promise is not None and promise.worked:
            # a snapshot was due, and its bytes were nowhere
            self.avoided.pop("U", None)
        for name, seconds in self.avoided.items():
            work = {dim: float(cost.computed[dim]) for dim in self.memory.work.get(name, ())}
            # what U's gates rolled out is in R's dimensions, and is the work of U
            for dim, value in self._evaluated(cost).items():
                if name == "U":
                    work[dim] = work.get(dim, 0.0) + value
                elif dim in work:
                    work[dim] -= value
            self.notes[name]["avoided"] = {f"seconds/{name}": seconds, **work}
        if promise is not None and "U" in self.avoided:
            promise.avoided = self.notes["U"]["avoided"]
        repaid = dict(self.memory.repaid)
        self.memory.repaid.clear()
        return {"maps": self.notes} | ({"repaid": repaid} if repaid else {})

    def _evaluated(self, cost: Cost) -> dict[str, float]:
        """The part of the computed cost that evaluations in U are."""
        report = dict(self.values["U"].report)
        if report.pop("evaluation", None) is None:
            return {}
        A: Any = self.memory.maps.A
        without = A.computed(self.state, self.values["R"], report)
        return {n: float(value - without[n]) for n, value in cost.computed.items()}

    def _find(self, name: str, note: dict[str, Any], thunk: Callable[[], Any]) -> Any:
        """A result that is kept, or one that was computed to check it; None if there is none."""
        entry = self.memory.folder.read(name, note["key"])
        if entry is None or entry.others:
            note["reason"] = DISPUTED if entry else NEW
            return None
        value = self._value(entry)
        if value is None:
            note["reason"] = GONE
            return None
        note |= {"found": True, "of": entry.of}
        if self.memory.folder.count(name) % self.memory.memo.check_every:
            self.avoided[name] = entry.seconds
            return value
        fresh, _ = self._run(name, thunk)
        note["checked"] = True
        result = spelt(fresh)
        if _text(result) != _text(entry.result):
            self._dispute(name, note, entry, fresh, result)
        return fresh

    def _dispute(
        self, name: str, note: dict[str, Any], entry: Kept, fresh: Any, result: Mapping[str, Any]
    ) -> None:
        """Keep both results, and say so."""
        for value in (fresh.state.model, fresh.state.optimizer) if name == "U" else (fresh,):
            self.memory.store.put(value)
        self.memory.folder.write(replace(entry, others=(result,)))
        differs = {"kept": named(entry.result), "computed": named(result)}
        note |= {"found": False, "reason": DISPUTED, "differs": differs}
        self.say(
            f"{name} of {self.name} is not deterministic: {entry.of} had {_short(differs['kept'])},"
            f" and computed again it is {_short(differs['computed'])}; both are kept, and the "
            "second goes on"
        )

    def _run(self, name: str, thunk: Callable[[], Any]) -> tuple[Any, float]:
        """A map's result, and how long it took."""
        if name in ("R", "U"):
            # before the map calls the other ranks to its inputs
            kept(self.state)
        began = time.monotonic()
        value = thunk()
        return value, time.monotonic() - began

    def _keep(
        self, key: Mapping[str, Any], note: dict[str, Any], value: Any, seconds: float
    ) -> None:
        if note["reason"] == DISPUTED:
            return
        if seconds < self.memory.memo.from_seconds:
            note["reason"] = QUICK
        elif key["map"] != "U" and value.meta.get("exogenous"):
            note["reason"] = OPEN
        else:
            try:
                entry = Kept(key, spelt(value), seconds, self.name)
            except TypeError:
                note["reason"] = UNSPELT
                return
            if key["map"] != "U":
                self.memory.store.put(value)
            self.memory.folder.write(entry)

    def _value(self, entry: Kept) -> Any:
        """The result of an entry, with a promise of its state; None where its bytes are gone."""
        result, store = entry.result, self.memory.store
        if entry.key["map"] != "U":
            try:
                return store.get(result["kind"], result["id"], check=True)
            except (KeyError, Corrupt):
                return None
        ids = {kind: result[kind] for kind in ("model", "optimizer")}
        U, start, G, seed = self.memory.maps.U, self.state, self.values["C"], self.seeds.update
        base = getattr(start.model, "base", None)
        promise = Promise(
            ids, make=lambda: U(kept(start), G, seed).state, read=lambda: stored(store, ids, base),
            start=start, repay=self.memory.repay,
        )  # fmt: skip
        state = promised(promise, start.model, result["metas"])
        return Proposal(Decision(result["decision"]), state, result["report"])


def stored(store: Store, ids: Mapping[str, str], base: Any) -> State | None:
    """A state of the store, on this base; None where it is not there, whole."""
    try:
        model: Any = store.get(Model, ids["model"], check=True, held=base)
        return State(model, store.get("optimizer", ids["optimizer"], check=True))
    except (KeyError, Corrupt):
        return None


def spelt(value: Any) -> dict[str, Any]:
    """A result as JSON gives it back. Raises TypeError for a report that has no spelling."""
    if not isinstance(value, Proposal):
        return {"kind": value.kind, "id": value.id}
    state: Any = value.state
    result = {
        "decision": value.decision.value, **state.exact(), "report": value.report,
        "metas": {"model": state.model.meta, "optimizer": state.optimizer.meta},
    }  # fmt: skip
    read: dict[str, Any] = json.loads(json.dumps(result))
    return read


def named(result: Mapping[str, Any]) -> dict[str, str]:
    """The identifiers of a result, and the decision."""
    return {k: result[k] for k in ("id", "decision", "model", "optimizer") if k in result}


def _text(result: Mapping[str, Any]) -> str:
    # as text: NaN is equal to itself
    return json.dumps(result, sort_keys=True)


def _short(names: Mapping[str, str]) -> str:
    return " ".join(v[7:19] if v.startswith("sha256:") else v for v in names.values())
