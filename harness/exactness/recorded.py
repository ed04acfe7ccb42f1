"""A recorded round, opened: its inputs, its results, and the session that can run it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config import build
from harness.ledger.entry import Entry
from harness.ledger.ledger import Ledger
from harness.ledger.lineage import Lineage
from harness.policies.model import Model
from harness.round import Cost, Decision, Policy, Proposal, Seed, Seeds, Stamp, State
from harness.runner import Session
from harness.store import Corrupt, Store
from harness.world import ALONE, World

VALUES = {"S": ("X", "instance"), "R": ("Z", "trajectories"), "F": ("F", "feedback"),
          "C": ("G", "credit")}  # fmt: skip
"""What a map's result is called in a record, and its kind in the store."""


@dataclass(frozen=True)
class Named:
    """A value of which only the identifier is at hand."""

    id: str


@dataclass(frozen=True)
class Stamped:
    """A policy that nobody asks for a token."""

    stamp: Stamp


@dataclass(frozen=True)
class Given:
    """A seed law that gives the seeds of a record."""

    seeds: Seeds

    def draw(self, root: str, arm: str, n: int) -> Seeds:
        return self.seeds


class Unavailable(Exception):
    """Something that a re-run needs is not in the store."""


@dataclass(frozen=True)
class Recorded:
    """A round of a lineage with what it takes to run it again."""

    lineage: Lineage
    entry: Entry
    parent: Entry
    session: Session

    @classmethod
    def open(
        cls, ledger: Ledger, lineage: Lineage, entry: Entry, *, store: Store,
        document: Mapping[str, Any] | None = None, session: Session | None = None,
        world: World = ALONE,
    ) -> Recorded:  # fmt: skip
        """Open a record; `document`: another configuration than the one under its seal."""
        if entry.n < 0:
            raise ValueError(f"{lineage.name}@-1 is the genesis record; give a round, 0 or later")
        parent = lineage.at(entry.n - 1, entry.branch)
        assert parent.identity == entry.document.parent, "the parent is another record"
        if session is None:
            session = session_of(ledger, lineage, document or config_of(entry), store, world)
        return cls(lineage, entry, parent, session)

    @property
    def name(self) -> str:
        branch = "" if self.entry.branch == "main" else f"@{self.entry.branch}"
        return f"{self.lineage.name}{branch}@{self.entry.n}"

    @property
    def exact(self) -> Mapping[str, Any]:
        return self.entry.document.exact

    @property
    def sealed(self) -> Mapping[str, Any]:
        return self.entry.document.sealed

    @property
    def seeds(self) -> Seeds:
        return Seeds(**{part: Seed(text) for part, text in self.exact["omega"].items()})

    def value(self, stage: str) -> Any:
        """The recorded result of a map. Raises Unavailable where its bytes were dropped."""
        if stage == "U":
            report = {**self.sealed["report"], "metrics": self.sealed["metrics"]}
            proposed = State(*(Named(self.exact["proposed"][k]) for k in ("model", "optimizer")))
            return Proposal(Decision(self.exact["d"]), proposed, report)
        if stage == "A":
            computed = {name: int(text) for name, text in self.exact["c"].items()}
            return Cost(computed, dict(self.sealed["metered"]))
        field, kind = VALUES[stage]
        try:
            return self.session.store.get(kind, self.exact[field], check=True)
        except Corrupt as error:
            raise Unavailable(str(error)) from None
        except KeyError:
            store, n = self.session.store, self.entry.n
            why = store.retired(kind, self.exact[field])
            gone = f"is not in the store {store.root}" if why is None else ""
            raise Unavailable(
                f"the recorded {field} of round {n} {gone or f'was dropped on purpose ({why})'}"
            ) from None

    def named_state(self) -> State:
        """The starting state by its identifiers alone."""
        return State(*(Named(self.exact["starting"][kind]) for kind in ("model", "optimizer")))

    def stamped(self, model: Any, inference: Any) -> Policy:
        return Stamped(Stamp(model.id, inference.id))


def config_of(entry: Entry) -> Mapping[str, Any]:
    """The resolved configuration under a record's seal."""
    config = entry.document.sealed.get("config")
    if config is None:
        raise ValueError(f"round {entry.n} has no configuration under its seal; it cannot be rerun")
    return config


def session_of(
    ledger: Ledger, lineage: Lineage, document: Mapping[str, Any], store: Store,
    world: World = ALONE,
) -> Session:  # fmt: skip
    """The session of a configuration, in a lineage that exists, over a store."""
    own = dict(document)
    own["lineage"] = {**own["lineage"], "name": lineage.name, "parent": None}
    own["store"] = {**own["store"], "root": store.root}
    return Session.open(build(own, lineage.name), ledger, first_model(lineage, store), world)


def first_model(lineage: Lineage, store: Store) -> Model | None:
    """The model that a lineage began with, whether its source is still on this machine or not."""
    identifier = lineage.genesis.document.resulting["model"]
    there = store.has("model", identifier)
    return store.get(Model, identifier, check=True) if there else None
