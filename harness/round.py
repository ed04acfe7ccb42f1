"""One agentic post-training round: the definition.

    X          = S(ω_task)                              an instance of the task T
    Z          = R(X, ω_roll)                           stopped trajectories of π_ν in Env^υ
    F          = F(X, Z, ω_feed)                        feedback
    Γ          = C(X, Z, F, ω_credit)                   credit
    (d, M̃, s̃) = U(M, s, Γ, ω_update)                   decision and proposal
    c          = A(M, s, X, Z, F, Γ, d, M̃, s̃, ω; κ)    cost, rejected work included
    (M', s')   = (M̃, s̃) if d is accept else (M, s)
    r          = (T, X, ν, υ, Z, F, Γ, d, M̃, s̃, M', s', ω, v, c)

Every map is a pure function of its listed inputs. κ are readings of the world (seconds, joules),
a declared further input of A; they are kept under a record's seal and never in its identity.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

from harness.identity import Seed as Seed
from harness.identity import Version


class Content(Protocol):
    """An immutable value with a content identifier."""

    @property
    def id(self) -> str: ...


class Decision(enum.StrEnum):
    """The decision space D."""

    ACCEPT = "accept"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Seeds:
    """ω = (task, roll, feed, credit, update)."""

    task: Seed
    roll: Seed
    feed: Seed
    credit: Seed
    update: Seed

    def exact(self) -> dict[str, str]:
        return {f.name: getattr(self, f.name).hex for f in fields(self)}


class SeedLaw(Protocol):
    """A declared joint law of ω, within a round, across rounds and across arms."""

    version: ClassVar[str]
    claims: ClassVar[tuple[str, ...]]

    def draw(self, root: str, arm: str, n: int) -> Seeds: ...


@dataclass(frozen=True, slots=True)
class Stamp:
    """ν = (a, ι): resolves a non-anticipating policy."""

    artifact: str
    inference: str


@dataclass(frozen=True, slots=True)
class State:
    """(M, s): what the policy runs, and what the optimizer keeps."""

    model: Content
    optimizer: Content

    def exact(self) -> dict[str, str]:
        return {"model": self.model.id, "optimizer": self.optimizer.id}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What U returns; the report is a function of U's inputs, for A and for people."""

    decision: Decision
    state: State
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """c: computed dimensions are integers of the work done, metered ones readings of the world."""

    computed: Mapping[str, int]
    metered: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, value in {**self.computed, **self.metered}.items():
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"cost {name} is {value}; every cost is finite and not negative")


class Policy(Protocol):
    @property
    def stamp(self) -> Stamp: ...


# the maps, with exactly the inputs that the definition lists
Sampler = Callable[[Seed], Any]
Rollout = Callable[[Any, Any], Callable[[Any, Seed], Any]]  # R_n = R(resolve(ν_n), Env^υ_n)
Feedback = Callable[[Any, Any, Seed], Any]
Credit = Callable[[Any, Any, Any, Seed], Any]
Update = Callable[[State, Any, Seed], Proposal]
# the last input is κ
Accounting = Callable[[State, Any, Any, Any, Any, Proposal, Seeds, Mapping[str, float]], Cost]


@dataclass(frozen=True, slots=True)
class Maps:
    """The six maps, exactly versioned."""

    S: Sampler
    R: Rollout
    F: Feedback
    C: Credit
    U: Update
    A: Accounting

    def versions(self) -> dict[str, Version]:
        return {f.name: Version.of(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Record:
    """r_n, and the starting state it is read with."""

    n: int
    task: Version
    X: Any
    stamp: Stamp
    environment: Version
    Z: Any
    F: Any
    G: Any
    proposal: Proposal
    starting: State
    resulting: State
    seeds: Seeds
    versions: Mapping[str, Version]
    cost: Cost

    def exact(self) -> dict[str, Any]:
        """What enters the record's identity, beside the schema and the parent's identity."""
        return {
            "n": self.n, "T": self.task.exact(), "X": self.X.id,
            "nu": {"a": self.stamp.artifact, "iota": self.stamp.inference},
            "upsilon": self.environment.exact(),
            "Z": self.Z.id, "F": self.F.id, "G": self.G.id, "d": self.proposal.decision.value,
            "starting": self.starting.exact(), "proposed": self.proposal.state.exact(),
            "resulting": self.resulting.exact(), "omega": self.seeds.exact(),
            "v": {name: version.exact() for name, version in self.versions.items()},
            "c": {name: str(value) for name, value in self.cost.computed.items()},
        }  # fmt: skip


class Stages(Protocol):
    """Who applies a map: measures it, shows it, finds it again. It may not change its value."""

    def __call__(self, name: str, thunk: Callable[[], Any], /) -> Any: ...

    def readings(self) -> Mapping[str, float]: ...


def execute(
    state: State, n: int, *, task: Any, environment: Any, inference: Content, law: SeedLaw,
    root: str, arm: str, maps: Maps, resolve: Callable[[Any, Any], Policy], stage: Stages,
) -> Record:  # fmt: skip
    """Run round n from a state. Raises ValueError where the stamp is not the model's."""
    nu = Stamp(state.model.id, inference.id)
    w = law.draw(root, arm, n)
    policy = resolve(state.model, inference)
    if policy.stamp != nu:
        raise ValueError(f"the policy is stamped {policy.stamp}, but round {n} runs {nu}")
    X = stage("S", lambda: maps.S(w.task))
    Z = stage("R", lambda: maps.R(policy, environment)(X, w.roll))
    F = stage("F", lambda: maps.F(X, Z, w.feed))
    G = stage("C", lambda: maps.C(X, Z, F, w.credit))
    P = stage("U", lambda: maps.U(state, G, w.update))
    c = stage("A", lambda: maps.A(state, X, Z, F, G, P, w, stage.readings()))
    resulting = P.state if P.decision is Decision.ACCEPT else state
    T, upsilon = Version.of(task), Version.of(environment)
    return Record(n, T, X, nu, upsilon, Z, F, G, P, state, resulting, w, maps.versions(), c)
