from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.accounting.standard import COMPUTED, Standard
from harness.forms import Artifact, Instance, Lesson, Scores, Trajectories
from harness.round import Decision, Proposal, Seeds, State

ARCHITECTURE = {"num_hidden_layers": 2, "hidden_size": 8}
MODEL = Artifact(
    "model", {"architecture": ARCHITECTURE}, {"embed_tokens.weight": SimpleNamespace(shape=(10, 8))}
)
MASKS = [[0, 0, 1, 1], [0, 0, 1, 0, 0, 1], [0, 1], [0, 1]]
CALLS: list[Any] = [[[{}, {}]], [[], []], [[]], [[]]]
IDS = [[5, 6, 1, 1], [5, 6, 2, 3, 3, 2], [7, 1], [8, 1]]


def trajectories() -> Trajectories:
    return Trajectories(
        {
            "problems": 2, "attempts": 2, "sampling": {},
            "episodes": [{"turns": [{"event": {"calls": c}} for c in turns]} for turns in CALLS],
        },
        {
            "token_ids": np.concatenate(IDS).astype(np.int32),
            "is_action": np.concatenate(MASKS).astype(bool),
            "episode_offsets": np.array([0, 4, 10, 12, 14]),
            "turn_episode": np.array([0, 1, 1, 2, 3], np.int32),
        },
    )  # fmt: skip


def cost(decision: Decision = Decision.ACCEPT, accounting: Standard | None = None, **readings: Any):
    state = State(MODEL, MODEL)
    report = {"tokens": 14, "tokens_scored": 14, "steps": 3}
    seeds: Any = Seeds(*[None] * 5)  # type: ignore[arg-type]
    return (accounting or Standard())(
        state, Instance({}), trajectories(), Scores({}), Lesson({}),
        Proposal(decision, state, report), seeds,
        {name.replace("_", "/", 1): value for name, value in readings.items()},
    )  # fmt: skip


def test_what_a_gate_rolled_out_is_counted():
    tried = {"prompt": 10, "sampled": 20, "observed": 5, "attended": 300, "packed": 999,
             "steps": 7, "calls": 3}  # fmt: skip
    plain = {"tokens": 14, "tokens_scored": 14, "steps": 3}
    state = State(MODEL, MODEL)
    without = Standard().computed(state, trajectories(), plain)
    with_it = Standard().computed(state, trajectories(), {**plain, "evaluation": tried})
    assert {k: with_it[k] - without[k] for k in with_it if with_it[k] != without[k]} == {
        "tokens/prompt": 10, "tokens/sampled": 20, "tokens/observed": 5, "environment/steps": 7,
        "tool/calls": 3, "flops/rollout": 2 * 80 * 35 + 4 * 16 * 300,
    }  # fmt: skip


def test_every_dimension_is_counted():
    # two attempts share the prompt 5 6; those at the second problem began differently
    assert cost().computed == {
        "tokens/prompt": 4,
        "tokens/sampled": 6,
        "tokens/observed": 2,
        "tokens/trained": 14,
        "tokens/scored": 14,
        "environment/steps": 5,
        "tool/calls": 2,
        "flops/rollout": 2 * 80 * 12 + 4 * 16 * (3 + 7 + 18 + 3 + 3),
        "flops/update": 2 * 80 * 56 + 4 * 16 * (10 + 21 + 3 + 3) * 4,
        "optimizer/steps": 3,
    }


def test_what_a_reference_scored_is_billed_at_its_own_size():
    report = {"steps": 0, "tokens": 0}
    alone = trajectories()
    told = {"id": "sha256:1", "tokens": 5, "attended": 15, "matrices": 1000, "width": 7}
    scored = alone.replace({"reference": told})
    state = State(MODEL, MODEL)
    one, two = (Standard().computed(state, Z, report) for Z in (alone, scored))
    assert two["flops/rollout"] - one["flops/rollout"] == 2 * 1000 * 5 + 4 * 7 * 15
    assert {**two, "flops/rollout": 0} == {**one, "flops/rollout": 0}


def test_a_rejected_proposal_costs_the_same():
    assert cost(Decision.REJECT) == cost(Decision.ACCEPT)


def test_only_declared_readings_enter():
    assert cost(seconds_U=1.5).metered == {}
    declared = Standard(metered=("seconds/U",))
    assert cost(accounting=declared, seconds_U=1.5, seconds_R=2.0).metered == {"seconds/U": 1.5}


def test_a_declared_reading_that_is_missing_fails_the_round():
    with pytest.raises(
        ValueError, match=r"the cost declares joules/total, which nothing here meters"
    ):
        cost(accounting=Standard(metered=("joules/total",)), seconds_U=1.0)


def test_the_dimensions_are_declared_with_units():
    listed = Standard(metered=["seconds/U", "memory/peak_bytes"]).dimensions()
    assert [d["name"] for d in listed] == [*COMPUTED, "seconds/U", "memory/peak_bytes"]
    assert listed[-1] == {"name": "memory/peak_bytes", "unit": "B", "computed": False}
    assert all(d["computed"] for d in listed[: len(COMPUTED)])
    assert list(cost().computed) == list(COMPUTED)


def test_a_reading_without_a_unit_is_refused():
    with pytest.raises(ValueError, match=r"the metered dimension 'happiness' has no unit"):
        Standard(metered=("happiness",))
