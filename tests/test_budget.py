"""A lineage stops before it overdraws."""

from types import SimpleNamespace

from harness.budget import bounds, costliest, overdrawn, total


def test_a_round_begins_only_where_its_most_fits():
    assert overdrawn({"a": 10.0}, {"a": 6.0}, {"a": 4.0}, {}, 3) == ""
    said = overdrawn({"a": 10.0}, {"a": 6.5}, {"a": 4.0}, {}, 3)
    assert said == "stopped before round 3: a is at 6 of 10, and a round has cost up to 4"


def test_a_bound_by_settings_outranks_what_was_seen():
    assert "can cost up to 9" in overdrawn({"a": 10.0}, {"a": 2.0}, {"a": 1.0}, {"a": 9.0}, 0)
    assert overdrawn({"a": 10.0}, {"a": 1.0}, {"a": 99.0}, {"a": 9.0}, 0) == ""


def test_what_is_not_limited_never_stops():
    assert overdrawn({}, {"a": 1e9}, {"a": 1e9}, {}, 0) == ""
    assert overdrawn({"b": 1.0}, {"a": 1e9}, {"a": 1e9}, {}, 0) == ""


def test_settings_bound_tokens_steps_and_updates():
    experiment = SimpleNamespace(
        maps=SimpleNamespace(
            S=SimpleNamespace(problems=3), R=SimpleNamespace(attempts=2),
            U=SimpleNamespace(epochs=2, minibatches=5),
        ),
        inference=SimpleNamespace(max_episode_tokens=100, max_turns=4, max_turn_tokens=10),
    )  # fmt: skip
    assert bounds(experiment) == {
        "optimizer/steps": 10.0, "tokens/sampled": 240.0, "environment/steps": 24.0
    }  # fmt: skip
    del experiment.maps.S.problems
    assert bounds(experiment) == {"optimizer/steps": 10.0}


def test_what_a_gate_may_evaluate_is_bounded_too():
    gates = {"kl": object(), "improvement": SimpleNamespace(most=lambda: {"tokens/sampled": 500})}
    experiment = SimpleNamespace(
        maps=SimpleNamespace(
            S=SimpleNamespace(problems=3), R=SimpleNamespace(attempts=2),
            U=SimpleNamespace(epochs=1, minibatches=1, gates=gates),
        ),
        inference=SimpleNamespace(max_episode_tokens=100, max_turns=4, max_turn_tokens=10),
    )  # fmt: skip
    assert bounds(experiment)["tokens/sampled"] == 740.0


def test_costs_are_compared_and_summed_by_dimension():
    record = lambda c, m: SimpleNamespace(exact={"c": c}, sealed={"metered": m})  # noqa: E731
    rows = [record({"a": "3"}, {"s": 0.5}), record({"a": "1"}, {"s": 2.0})]
    assert costliest(rows) == {"a": 3.0, "s": 2.0}
    assert total({"a": 1}, {"a": 2, "b": 3}) == {"a": 3.0, "b": 3.0}
