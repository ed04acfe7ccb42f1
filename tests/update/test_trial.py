"""An update whose proposal is evaluated: with both states, in the engine that holds them."""

import dataclasses

import numpy as np
import pytest

from harness.environments.vault import Vault
from harness.feedback.verified import Verified
from harness.forms import Artifact, Instance
from harness.policies.resident import Resident
from harness.rollout.sampled import Sampled
from harness.round import Decision, Seed, State
from harness.tasks.vault import Vault as Codes
from harness.update.gates.always import Always
from harness.update.gates.improvement import Improvement
from harness.world import ALONE

SEED = Seed("33" * 16)


def gates(made, **settings):
    given = {"part": "whole", "tasks": 16, "batch": 8, **settings}
    gate = Improvement(
        task=Codes(), environment=Vault(), inference=made.iota, rollout=Sampled(attempts=2),
        feedback=Verified(), **given,
    )  # fmt: skip
    return {"always": Always(), "improvement": gate}


def copied(made, state):
    """The same state in tensors that outlive the engine."""
    own = lambda artifact: {n: t.clone() for n, t in artifact.tensors.items()}  # noqa: E731
    optimizer = Artifact("optimizer", state.optimizer.meta, own(state.optimizer))
    return State(made.model.with_tensors(own(state.model)), optimizer)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("margin", [-0.99, 0.9])
def test_both_models_are_evaluated_and_the_right_one_is_kept(play, update, dtype, margin):
    made = play(dtype)
    made_gates = gates(made, margin=margin, level=0.4)
    U = update(made.resident, gates=made_gates, lr=3e-2)
    start = copied(made, made.state)
    P = U(made.state, made.G, SEED)
    assert P.decision is (Decision.ACCEPT if margin < 0 else Decision.REJECT)
    # the engine holds what the round results in, bit for bit
    engine = next(iter(made.resident.caches.values()))
    kept = P.state if P.decision is Decision.ACCEPT else start
    assert engine.current == tuple(kept.exact().values())
    assert engine.propose().exact() == kept.exact()
    # rolled out again elsewhere, both models earn what the gate says
    numbers = P.report["gates"][1]["numbers"]
    proposed = copied(made, P.state)
    for name, model in (("before", start.model), ("after", proposed.model)):
        own = [earned(made, model, SEED.fold("gate", "improvement", k)) for k in range(2)]
        mean = np.mean(own[: int(numbers["tasks"]) // 8])
        assert numbers[name] == pytest.approx(mean, abs=1e-12)


def earned(made, model, seed):
    X = Instance({"problems": [Codes().draw(seed.fold("task", i)) for i in range(8)]})
    policy = Resident().policy(model, made.iota)
    Z = Sampled(attempts=2)(policy, Vault())(X, seed.fold("roll"))
    return Verified()(X, Z, seed).rewards_B.mean()


def test_a_proposal_that_changes_nothing_ties(play, update):
    made = play()
    P = update(made.resident, gates=gates(made), lr=1e-30)(made.state, made.G, SEED)
    numbers = P.report["gates"][1]["numbers"]
    assert numbers["before"] == numbers["after"]
    assert (numbers["p"], P.decision) == (1.0, Decision.REJECT)


def test_an_update_that_evaluates_is_a_function_of_its_inputs(play, update):
    made = play()
    U = update(made.resident, gates=gates(made, margin=-0.99), lr=3e-2)
    first = U(copied(made, made.state), made.G, SEED)
    again = dataclasses.replace(U, resident=Resident())(copied(made, made.state), made.G, SEED)
    assert again.report == first.report
    assert again.state.exact() == first.state.exact()
    # and another round sees other tasks
    other = U(copied(made, made.state), made.G, SEED.fold("next"))
    assert other.report["gates"][1]["numbers"] != first.report["gates"][1]["numbers"]


def test_what_it_costs_is_reported(play, update):
    made = play()
    P = update(made.resident, gates=gates(made), lr=1e-30)(made.state, made.G, SEED)
    evaluation = P.report["evaluation"]
    numbers = P.report["gates"][1]["numbers"]
    tokens = sum(evaluation[name] for name in ("prompt", "sampled", "observed"))
    assert numbers["tokens"] == tokens
    assert 64 <= evaluation["sampled"] <= gates(made)["improvement"].most()["tokens/sampled"]


def test_where_another_gate_rejects_nothing_is_evaluated(play, update):
    made = play()
    given = gates(made) | {"always": Always("reject")}
    P = update(made.resident, gates=given)(made.state, made.G, SEED)
    assert "evaluation" not in P.report
    assert [g["passed"] for g in P.report["gates"]] == [False, False]


def test_it_is_bound_to_a_tokenizer_and_to_ranks(play):
    made = play()
    gate = gates(made)["improvement"]
    world = dataclasses.replace(ALONE, together=True)
    bound = gate.bind(made.resident.policy(made.model, made.iota).tokenizer, world)
    assert bound.rollout.world is world
    assert bound.inference == made.iota
