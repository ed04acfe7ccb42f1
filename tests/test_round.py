from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any, ClassVar

import pytest

from harness.forms import Document
from harness.identity import Version, canonical
from harness.round import (
    Cost,
    Decision,
    Maps,
    Proposal,
    Record,
    Seed,
    Seeds,
    Stamp,
    State,
    execute,
)
from harness.seeds.independent import PARTS, Independent

START = State(Document({"weights": 0}), Document({"moments": 0}))
NEXT = State(Document({"weights": 1}), Document({"moments": 1}))
IOTA = Document({"temperature": 1})


@dataclass(frozen=True)
class Setting:
    """A map that remembers, outside its identity, what it was given."""

    version: ClassVar[str] = "1"
    name: str
    result: Any = field(default=None, metadata={"identity": False})
    given: list[Any] = field(default_factory=list, metadata={"identity": False})

    def __call__(self, *inputs: Any) -> Any:
        self.given.append(inputs)
        return self.result


@dataclass(frozen=True)
class Roll:
    """R: first the policy and the environment, then the instance and a seed."""

    version: ClassVar[str] = "1"
    inner: Setting
    bound: list[Any] = field(default_factory=list, metadata={"identity": False})

    def __call__(self, policy: Any, environment: Any) -> Setting:
        self.bound.append((policy, environment))
        return self.inner


@dataclass(frozen=True)
class Policy:
    stamp: Stamp


class Stages:
    """Applies a map, and notes its name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str, thunk: Any) -> Any:
        self.names.append(name)
        return thunk()

    def readings(self) -> dict[str, float]:
        return {"seconds/R": 0.5}


def values(decision: Decision = Decision.ACCEPT) -> dict[str, Any]:
    return {
        "S": Document({"X": 1}), "R": Document({"Z": 1}), "F": Document({"F": 1}),
        "C": Document({"G": 1}), "U": Proposal(decision, NEXT, {"steps": 1}),
        "A": Cost({"tokens/sampled": 7}, {"seconds/total": 0.5}),
    }  # fmt: skip


def maps(decision: Decision = Decision.ACCEPT) -> Maps:
    made = {name: Setting(name, value) for name, value in values(decision).items()}
    return Maps(**{**made, "R": Roll(made["R"])})


def run(maps: Maps, n: int = 3, resolve: Any = None, stages: Stages | None = None) -> Record:
    return execute(
        START, n, task=Setting("task"), environment=Setting("environment"), inference=IOTA,
        law=Independent(), root="1", arm="a", maps=maps,
        resolve=resolve or (lambda model, iota: Policy(Stamp(model.id, iota.id))),
        stage=stages or Stages(),
    )  # fmt: skip


def test_a_record_has_every_field_of_r_n():
    ours, made = maps(), values()
    record = run(ours)
    assert [made[name] for name in "SRFC"] == [record.X, record.Z, record.F, record.G]
    assert (record.proposal, record.cost) == (made["U"], made["A"])
    assert record.stamp == Stamp(START.model.id, IOTA.id)
    assert record.seeds == Independent().draw("1", "a", 3)
    assert (record.starting, record.resulting) == (START, NEXT)
    assert record.task == Version.of(Setting("task"))
    assert record.environment == Version.of(Setting("environment"))
    assert record.versions == ours.versions()
    assert set(record.versions) == set("SRFCUA")


def test_the_exact_part_is_canonical_and_complete():
    exact = run(maps()).exact()
    assert set(exact) == {
        "n", "T", "X", "nu", "upsilon", "Z", "F", "G", "d", "starting", "proposed", "resulting",
        "omega", "v", "c",
    }  # fmt: skip
    assert exact["d"] == "accept"
    assert exact["proposed"] == NEXT.exact() == exact["resulting"]
    assert exact["omega"] == Independent().draw("1", "a", 3).exact()
    assert exact["c"] == {"tokens/sampled": "7"}
    canonical(exact)


def test_metered_readings_and_reports_are_not_in_the_exact_part():
    ours = maps()
    other = replace(
        ours,
        A=Setting("A", Cost({"tokens/sampled": 7}, {"seconds/total": 99.0})),
        U=Setting("U", Proposal(Decision.ACCEPT, NEXT, {"steps": 1, "seen": "later"})),
    )
    assert run(ours).exact() == run(other).exact()


def test_a_rejected_round_keeps_the_starting_state():
    record = run(maps(Decision.REJECT))
    assert record.resulting is START
    assert record.proposal.state is NEXT
    exact = record.exact()
    assert exact["resulting"] == exact["starting"] != exact["proposed"]
    assert exact["c"] == {"tokens/sampled": "7"}


def test_a_map_gets_exactly_its_inputs():
    ours, made, w = maps(), values(), Independent().draw("1", "a", 3)
    stages = Stages()
    run(ours, stages=stages)
    X, Z, F, G, P = (made[name] for name in "SRFCU")
    assert ours.S.given == [(w.task,)]
    assert ours.R.inner.given == [(X, w.roll)]
    assert ours.R.bound == [(Policy(Stamp(START.model.id, IOTA.id)), Setting("environment"))]
    assert ours.F.given == [(X, Z, w.feed)]
    assert ours.C.given == [(X, Z, F, w.credit)]
    assert ours.U.given == [(START, G, w.update)]
    assert ours.A.given == [(START, X, Z, F, G, P, w, {"seconds/R": 0.5})]
    assert stages.names == list("SRFCUA")


@pytest.mark.parametrize("wrong", ["artifact", "inference"])
def test_a_round_whose_stamp_is_not_its_models_fails(wrong):
    ours = maps()
    stamp = replace(Stamp(START.model.id, IOTA.id), **{wrong: "sha256:" + "0" * 64})
    with pytest.raises(ValueError, match=r"the policy is stamped .*0000.* but round 3 runs"):
        run(ours, resolve=lambda model, iota: Policy(stamp))
    assert not ours.S.given


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), -0.5])
@pytest.mark.parametrize("part", ["computed", "metered"])
def test_costs_are_finite_and_not_negative(part, value):
    dimensions = {"computed": {}, "metered": {}} | {part: {"tokens": value}}
    with pytest.raises(ValueError, match=r"cost tokens is .*; every cost is finite"):
        Cost(**dimensions)


def test_a_cost_of_nothing_is_a_cost():
    assert Cost({"tokens": 0}, {"seconds": 0.0}).computed == {"tokens": 0}


def test_rounds_and_states_cannot_be_written_into():
    record = run(maps())
    with pytest.raises(FrozenInstanceError):
        record.n = 4
    with pytest.raises(FrozenInstanceError):
        START.model = NEXT.model


def test_sub_seeds_do_not_depend_on_the_order_in_which_they_are_taken():
    root = Seed("00" * 16)
    forth = [root.fold("episode", p, g) for p in range(4) for g in range(4)]
    back = [root.fold("episode", p, g) for p in reversed(range(4)) for g in reversed(range(4))]
    assert forth == back[::-1]
    assert len({seed.hex for seed in forth}) == 16


def test_paths_do_not_run_into_each_other():
    root = Seed("0f" * 16)
    paths = [(1, 23), (12, 3), ("1", 23), ("12", "3"), ("123",), (123,), ("1,23",), ()]
    assert len({root.fold(*path).hex for path in paths}) == len(paths)
    assert root.fold("a").fold("b") != root.fold("a", "b")


def test_a_sub_seed_is_a_golden_value():
    # sha256("harness/seed/v1" 0x00 seed '["episode",0,1]'), its first 128 bits
    import hashlib

    body = b"harness/seed/v1\0" + bytes(16) + b'["episode",0,1]'
    assert Seed("00" * 16).fold("episode", 0, 1).hex == hashlib.sha256(body).hexdigest()[:32]


def test_a_key_is_the_first_half_of_a_seed():
    assert Seed("0123456789abcdef" + "f" * 16).key == 0x0123456789ABCDEF


def test_seeds_spell_their_five_parts():
    seeds = Seeds(*(Seed(f"{i:032x}") for i in range(5)))
    assert seeds.exact() == {part: f"{i:032x}" for i, part in enumerate(PARTS)}
