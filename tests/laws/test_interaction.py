"""R against its exact law, and faults that are found with the sample size of the command."""

import dataclasses

import numpy as np
import pytest
import torch

from harness.environments.turns import trajectories
from harness.environments.vault import Vault
from harness.laws import interaction
from harness.laws.interaction import coupling, family, law_of, paths_of
from harness.laws.statistics import holm
from harness.policies import resident as engine
from harness.policies.inference import Inference
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import VOCABULARY, Tiny
from harness.rollout.sampled import Sampled
from harness.round import Seed
from harness.tasks.vault import Vault as Task

LEVEL = 1e-3
ENVIRONMENT = Vault(turns=3)
PROBLEM = Task().nth(5)
INFERENCE = Inference(
    serializer=Plain(), max_turn_tokens=1, max_turns=16, max_episode_tokens=16, context=128,
    prefill_rows=64,
)  # fmt: skip
OWN, SHARED = [Seed("0" * 32).fold("laws", i) for i in range(8)], {}
TRUNCATED = {"top_k": 5}


def policy_of(**changed):
    if "resident" not in SHARED:
        SHARED["resident"], SHARED["model"] = Resident(), Tiny().initial()
    inference = dataclasses.replace(INFERENCE, **changed)
    return SHARED["resident"].policy(SHARED["model"], inference)


def law(**changed):
    """The exact law, once for all tests."""
    key = tuple(changed.items())
    if key not in SHARED:
        SHARED[key] = law_of(policy_of(**changed), ENVIRONMENT, PROBLEM)
    return SHARED[key]


def rejected(rollout=None, seeds=OWN[:1], attempts=4096, **changed):
    """Claims that are rejected. The command has 32768 episodes, 8192 if truncated: no fewer."""
    policy = policy_of(**changed)
    rollout = dataclasses.replace(rollout or Sampled(), attempts=attempts)
    found = interaction.checks(
        rollout, policy, ENVIRONMENT, PROBLEM, seeds, name="R", level=LEVEL, law=law(**changed)
    )
    return {c.claim for c, bad in zip(found, holm(found, LEVEL), strict=True) if bad}


def test_the_cells_are_a_partition():
    for changed in ({}, TRUNCATED, {"top_p": 0.7}, {"min_p": 0.3}, {"max_turns": 2}):
        assert sum(law(**changed).cells.values()) == pytest.approx(1, abs=1e-12)


def test_every_stopped_trajectory_of_the_vault_is_in_it():
    """The environment's own enumeration over words, with the words' probabilities."""
    words = [w for w in VOCABULARY if not w.startswith("<")]
    paths = list(trajectories(ENVIRONMENT, PROBLEM, OWN[0], words, limit=100_000))
    index = {w: i for i, w in enumerate(VOCABULARY)}
    named = {
        tuple(index[turn["action"]["text"]] for turn in path):
        tuple(turn["event"]["reward"] for turn in path)
        for path in paths
    }  # fmt: skip
    cells = {c[0]: c[2] for c in law().cells if all(t >= 8 for t in c[0])}
    assert cells == named


def test_a_law_that_is_cut_short_is_still_a_partition_and_holds():
    cut = law_of(policy_of(), ENVIRONMENT, PROBLEM, limit=20)
    assert sum(cut.cells.values()) == pytest.approx(1, abs=1e-12)
    assert any(cell[1] == "…" for cell in cut.cells)
    found = interaction.checks(
        Sampled(attempts=2048), policy_of(), ENVIRONMENT, PROBLEM, OWN[:1], name="R", level=LEVEL,
        law=cut,
    )  # fmt: skip
    assert not any(holm(found, LEVEL))


def test_the_rollout_has_the_law_that_it_claims():
    assert rejected(seeds=OWN[:2]) == set()


@pytest.mark.parametrize(
    "changed", [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.3}, {"max_turns": 2}], ids=str
)
def test_so_has_every_truncated_one(changed):
    assert rejected(attempts=2048, **changed) == set()


def test_reflected_pairs_have_their_coupling_and_not_the_product():
    assert rejected(Sampled(antithetic=True)) == set()
    pretending = dataclasses.make_dataclass(
        "Pretending", [("antithetic", bool, False)], bases=(Sampled,), frozen=True,
        namespace={"__call__": lambda self, *a: dataclasses.replace(
            Sampled(), attempts=self.attempts, antithetic=True)(*a)},
    )()  # fmt: skip
    assert "R: attempts are independent" in rejected(pretending)


def planted(monkeypatch, change):
    real = engine.sample
    monkeypatch.setattr(engine, "sample", lambda logits, *a, **k: change(real, logits, *a, **k))


def test_a_temperature_off_by_five_percent_is_rejected(monkeypatch):
    def hot(real, *args, temperature, **kwargs):
        return real(*args, temperature=1.05 * temperature, **kwargs)

    planted(monkeypatch, hot)
    found = rejected(seeds=OWN[:2])
    assert {"R: temperature", "R: recorded log-probabilities"} <= found


def test_even_where_the_recorded_numbers_lie(monkeypatch):
    """Tokens from the wrong temperature under the right log-probabilities."""

    def hot(real, logits, *args, temperature, **kwargs):
        token, _, threshold, entropy = real(logits, *args, temperature=1.05, **kwargs)
        logp = logits.log_softmax(-1).gather(1, token[:, None])[:, 0]
        return token, logp, threshold, entropy

    planted(monkeypatch, hot)
    found = rejected(seeds=OWN[:2])
    assert "R: temperature" in found
    assert "R: recorded log-probabilities" not in found


def test_an_action_that_is_dropped_is_rejected(monkeypatch):
    def deaf(real, logits, *args, **kwargs):
        logits = logits.clone()
        logits[:, VOCABULARY.index("look")] = -torch.inf
        return real(logits, *args, **kwargs)

    planted(monkeypatch, deaf)
    assert "R: trajectories" in rejected()


@pytest.mark.parametrize("k", [4, 6])
def test_a_truncation_off_by_one_is_rejected(monkeypatch, k):
    def off(real, *args, top_k, **kwargs):
        return real(*args, top_k=k, **kwargs)

    planted(monkeypatch, off)
    assert "R: trajectories" in rejected(attempts=2048, **TRUNCATED)


def test_a_limit_off_by_one_is_rejected(monkeypatch):
    policy = policy_of(max_turns=3)
    found = interaction.checks(
        Sampled(attempts=1024), policy, ENVIRONMENT, PROBLEM, OWN[:1], name="R", level=LEVEL,
        law=law(max_turns=2),
    )  # fmt: skip
    assert [c.claim for c in found if c.p == 0]


def test_seeds_that_are_reused_are_rejected(monkeypatch):
    """Every second attempt has the luck of the one before it."""
    real = Seed.fold

    def twice(self, *path):
        if path[0] == "episode":
            path = (*path[:2], path[2] // 2 * 2)
        return real(self, *path)

    monkeypatch.setattr(Seed, "fold", twice)
    assert "R: attempts are independent" in rejected()


def test_rounds_that_reuse_their_seeds_are_rejected():
    """The same thousand episodes eight times over are not eight thousand."""
    assert "R: trajectories" in rejected(seeds=[OWN[0]] * 8, attempts=1024)


def test_the_families_are_their_definitions():
    logits = np.log(np.array([[0.5, 0.2, 0.2, 0.1]]))
    kept = lambda **k: np.exp(family(logits, dataclasses.replace(INFERENCE, **k)))[0]  # noqa: E731
    assert kept() == pytest.approx([0.5, 0.2, 0.2, 0.1])
    assert kept(top_k=1) == pytest.approx([1, 0, 0, 0])
    # equal values are kept or dropped together
    assert kept(top_k=2) == pytest.approx([5 / 9, 2 / 9, 2 / 9, 0])
    assert kept(top_p=0.6) == pytest.approx([5 / 9, 2 / 9, 2 / 9, 0])
    assert kept(min_p=0.3) == pytest.approx([5 / 9, 2 / 9, 2 / 9, 0])
    assert kept(temperature=0.5)[0] == pytest.approx(0.25 / 0.34)


def test_a_coupling_has_the_law_as_both_of_its_margins():
    p = np.random.default_rng(0).dirichlet(np.ones(12))
    joint = coupling(p)
    assert joint.sum(0) == pytest.approx(p)
    assert joint.sum(1) == pytest.approx(p)
    assert coupling(np.array([0.5, 0.5])) == pytest.approx(np.array([[0, 0.5], [0.5, 0]]))


def test_paths_are_the_sampled_tokens_and_the_end(opened_vault):
    for (path, stop, rewards), episode in zip(
        paths_of(opened_vault), opened_vault.episodes, strict=True
    ):
        assert len(path) == len(rewards) == len(episode["turns"])
        assert stop in ("TERMINATED", "TURN_BUDGET")


@pytest.fixture
def opened_vault():
    from harness.forms import Instance

    roll = Sampled(attempts=16)(policy_of(), ENVIRONMENT)
    return roll(Instance({"problems": [PROBLEM]}), OWN[0])
