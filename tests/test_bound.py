"""Rounds of a tiny model with a frozen reference, from the rollout to the update."""

import dataclasses

import numpy as np
import pytest

from harness.accounting.standard import Standard
from harness.bound import with_reference
from harness.credit.group import Group
from harness.credit.kl_in_reward import KLInReward
from harness.credit.pairs import Pairs
from harness.credit.reinforce import Reinforce
from harness.environments.vault import Vault
from harness.forms import Scores
from harness.policies.inference import Inference
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny
from harness.rollout.reference import Reference
from harness.rollout.sampled import Sampled
from harness.round import Maps, State, execute
from harness.seeds.independent import Independent
from harness.tasks.product import Product
from harness.tasks.vault import Vault as Codes
from harness.update.deepspeed import DeepSpeed
from harness.update.engine import initial_optimizer
from harness.update.gates.always import Always
from harness.update.gates.clip_fraction import ClipFraction
from harness.update.objectives.dpo import DPO
from harness.update.objectives.gspo import GSPO
from harness.update.objectives.ppo import PPO

SIZES = {"hidden": 32, "heads": 2, "intermediate": 64, "scale": 0.3}
INFERENCE = Inference(
    Plain(), max_turn_tokens=2, max_turns=4, max_episode_tokens=8, context=64, temperature=0.8,
    top_p=0.9,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Large:
    """Rewards that an untrained model has, and that differ: the mean of the sampled tokens."""

    version = "1"

    def __call__(self, X, Z, seed):
        sums = np.add.reduceat(np.where(Z.is_action_T, Z.token_ids_T, 0), Z.episode_offsets[:-1])
        counts = np.add.reduceat(Z.is_action_T.astype(int), Z.episode_offsets[:-1])
        return Scores({"components": ["large"]}, {"rewards": sums / counts / 32})


class Stages:
    def __call__(self, name, thunk):
        return thunk()

    def readings(self):
        return {}


@pytest.fixture(scope="module")
def model():
    return Tiny(**SIZES).initial()


@pytest.fixture(scope="module")
def other():
    return Tiny(**SIZES, seed=1, layers=1).initial()


def rounds(model, reference, credit, objective, count=1, gates=None, **update):
    """Records of a few rounds."""
    resident = Resident()
    task = Codes()
    R = Sampled(attempts=4, reference=None if reference is None else Reference())
    if reference is not None:
        R = with_reference(R, reference, INFERENCE)
    U = DeepSpeed(objective, gates or {"always": Always()}, lr=1e-3, resident=resident, **update)
    maps = Maps(Product(task, problems=4), R, Large(), credit, U, Standard())
    state, records = State(model, initial_optimizer(model)), []
    for n in range(count):
        made = execute(
            state, n, task=task, environment=Vault(), inference=INFERENCE, law=Independent(),
            root="1", arm="main", maps=maps, resolve=resident.policy, stage=Stages(),
        )  # fmt: skip
        records.append(made)
        state = made.resulting
    return records


def gap(record):
    Z = record.Z
    return float(np.square(Z.logprobs_T - Z.arrays["ref_logprobs"])[Z.is_action_T].mean())


def metrics(record):
    return record.proposal.report["metrics"]


def test_a_kl_term_to_the_policy_itself_is_no_force(model):
    """The first step from the reference has no KL: its loss and gradient are those without one."""
    held = PPO(kl="k2", kl_coef=10.0)
    plain, own = (rounds(model, model, Group(), o)[0] for o in (PPO(), held))
    assert own.Z.id == plain.Z.id
    assert metrics(own)["loss"] == pytest.approx(metrics(plain)["loss"], abs=1e-6)
    assert metrics(own)["grad_norm"] == pytest.approx(metrics(plain)["grad_norm"], rel=1e-4)


def test_a_kl_term_pulls_towards_another_reference(model, other):
    held = PPO(kl="k2", kl_coef=10.0)
    free, pulled = (rounds(model, other, Group(), o, count=6) for o in (PPO(), held))
    assert free[0].Z.id == pulled[0].Z.id
    assert gap(pulled[5]) < 0.8 * gap(free[5])
    assert metrics(pulled[0])["loss"] == pytest.approx(5.0 * gap(pulled[0]), rel=0.05)


def test_kl_in_reward_is_zero_for_the_policy_itself_and_a_penalty_for_another(model, other):
    credit = KLInReward(Reinforce(), coef=0.5, kind="k3")
    own, away = (rounds(model, reference, credit, PPO())[0] for reference in (model, other))
    alone = Reinforce()(own.X, own.Z, own.F, own.seeds.credit)
    np.testing.assert_allclose(own.G.advantages_T, alone.advantages_T, atol=1e-5)
    Z = away.Z
    gap_T = (Z.logprobs_T.astype(float) - Z.arrays["ref_logprobs"])[Z.is_action_T]
    by_hand = 0.5 * (np.exp(-gap_T) - 1 + gap_T).sum() / len(Z.stop_B)
    assert away.G.meta["statistics"]["penalty_mean"] == pytest.approx(by_hand, rel=1e-6)
    assert by_hand > 0.1


def test_dpo_learns_relative_to_what_was_recorded(model, other):
    objective = DPO(reference="recorded")
    (own,) = rounds(model, model, Pairs(), objective)
    # the policy is the reference: no log-odds yet
    assert own.G.meta["pairs"]
    assert metrics(own)["loss"] == pytest.approx(np.log(2), abs=1e-5)
    (away,) = rounds(model, other, Pairs(), objective)
    gap_T = np.where(away.Z.is_action_T, away.Z.logprobs_T - away.Z.arrays["ref_logprobs"], 0.0)
    gap_B = np.add.reduceat(gap_T, away.Z.episode_offsets[:-1])
    odds = [0.1 * (gap_B[i] - gap_B[j]) for i, j in away.G.meta["pairs"]]
    assert odds
    assert metrics(away)["loss"] == pytest.approx(np.logaddexp(0, -np.array(odds)).mean(), rel=1e-4)
    assert "policy/clip_fraction" not in metrics(away)
    with pytest.raises(ValueError, match="a gate reads 'policy/clip_fraction', but the update"):
        rounds(model, other, Pairs(), objective, gates={"clip": ClipFraction()})


def test_the_reference_is_in_the_version_and_in_the_cost(model, other):
    (without,) = rounds(model, None, Group(), PPO())
    (record,) = rounds(model, other, Group(), PPO())
    assert record.versions["R"] != without.versions["R"]
    assert record.cost.computed["flops/rollout"] > without.cost.computed["flops/rollout"]
    told = record.Z.meta["reference"]
    more = 2 * told["matrices"] * told["tokens"] + 4 * told["width"] * told["attended"]
    both = record.cost.computed["flops/rollout"] - without.cost.computed["flops/rollout"]
    assert both == more


@pytest.mark.parametrize("form", ["token", "sequence"])
def test_what_two_passes_clip_is_reported(model, form):
    """Ratios are 1 at first, and beyond bounds of nothing at every later step."""
    tight = GSPO(form=form, clip_low=0.0, clip_high=0.0)
    one, two = (rounds(model, None, Group(), tight, epochs=epochs)[0] for epochs in (1, 2))
    assert metrics(two)["policy/clip_fraction"] > metrics(one)["policy/clip_fraction"]
    wide = dataclasses.replace(tight, clip_low=1.0, clip_high=100.0)
    (none,) = rounds(model, None, Group(), wide, epochs=2)
    assert metrics(none)["policy/clip_fraction"] == 0
