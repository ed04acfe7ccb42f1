"""Credit and objectives against verl's own functions, called on a fixed batch.

Where we differ: verl gives a lone attempt its raw reward (GRPO, RLOO), ours is refused; its dual
clip is on by default; its k3 is clamped to 10, ours is not; its sequence means
divide by n + 1e-8.
"""

import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from harness.credit.dr_grpo import DrGRPO
from harness.credit.gae import GAE
from harness.credit.group import Group
from harness.credit.kl_in_reward import estimate
from harness.credit.reinforce_pp import ReinforcePP
from harness.credit.rloo import RLOO
from harness.update.objectives.cispo import CISPO
from harness.update.objectives.correction import correct
from harness.update.objectives.gspo import GSPO
from harness.update.objectives.ppo import PPO
from harness.update.objectives.reinforce import Reinforce

pytest.importorskip(
    "tensordict",
    reason="verl is not installed here: tests/peers/environment.sh makes a place for it",
)
pytestmark = pytest.mark.filterwarnings("ignore")
REWARDS = [1.0, 0.25, 0.0, 3.0]
INDEX = np.array([0, 0, 1, 1])


class Absent(types.ModuleType):
    """A module that is not there, for imports that nothing here uses."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock(name=name)


@pytest.fixture(scope="module")
def verl() -> Iterator[Any]:
    """Its algorithms, without Ray, which it imports and its algorithms never call."""
    names = ("ray", "ray.util", "ray.util.placement_group", "ray.util.scheduling_strategies",
             "ray.actor", "ray.experimental", "ray.experimental.state")  # fmt: skip
    absent = {name: Absent(name) for name in names if name not in sys.modules}
    with mock.patch.dict(sys.modules, absent), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        algorithms = pytest.importorskip(
            "verl.trainer.ppo.core_algos",
            reason="verl is not installed here: tests/peers/environment.sh makes a place for it",
        )
        from verl.trainer.ppo import rollout_corr_helper
    # two of its losses insist on the class of their configuration
    with mock.patch.object(algorithms, "ActorConfig", Config):
        yield types.SimpleNamespace(**{**vars(algorithms), "correction": rollout_corr_helper})


class Config(types.SimpleNamespace):
    """What its losses read of a configuration."""

    def get(self, name: str, default: Any) -> Any:
        return getattr(self, name, default)


def config(**settings: Any) -> Config:
    clip = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
    return Config(**{**clip, "clip_ratio_c": 1e9, "global_batch_info": {}, **settings})


def at_the_end(both, rewards):
    """Rewards of episodes on their last action tokens."""
    padded = torch.zeros_like(both.mask)
    for b, row in enumerate(both.mask):
        padded[b, int(row.nonzero().max())] = rewards[b]
    return padded


def credit_agrees(both, mine, advantages):
    packed = both.pack(advantages * both.mask)
    assert np.abs(packed).max() > 0.1
    assert_allclose(mine.advantages_T, packed, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scaled", [True, False])
def test_group_credit_agrees(verl, both, scaled):
    advantages, _ = verl.compute_grpo_outcome_advantage(
        at_the_end(both, REWARDS), both.mask, INDEX, norm_adv_by_std_in_grpo=scaled
    )
    credit_agrees(both, (Group() if scaled else DrGRPO())(*both.inputs(REWARDS)), advantages)


def test_leave_one_out_credit_agrees(verl, both):
    for function in (
        verl.compute_rloo_outcome_advantage,
        verl.compute_rloo_vectorized_outcome_advantage,
    ):
        advantages, _ = function(at_the_end(both, REWARDS), both.mask, INDEX)
        credit_agrees(both, RLOO()(*both.inputs(REWARDS)), advantages)


def test_a_lone_attempt_has_its_raw_reward_there_and_is_refused_here(verl, both):
    advantages, _ = verl.compute_grpo_outcome_advantage(
        at_the_end(both, REWARDS), both.mask, np.arange(4)
    )
    assert_allclose(both.pack(advantages).max(), 3.0, rtol=1e-5)
    with pytest.raises(ValueError, match="attempts is 1"):
        Group().check(1)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.7)])
def test_gae_agrees_and_skips_observations(verl, both, numbers, gamma, lam):
    advantages, returns = verl.compute_gae_advantage_return(
        at_the_end(both, REWARDS), numbers["values"], both.mask, gamma, lam
    )
    inputs = both.inputs(REWARDS, values=numbers["values"])
    mine = GAE(gamma=gamma, lam=lam)(*inputs)
    credit_agrees(both, mine, advantages)
    action = both.pack(both.mask) > 0
    assert_allclose(
        mine.arrays["returns"][action], both.pack(returns)[action], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_plus_plus_agrees(verl, both, gamma):
    advantages, _ = verl.compute_reinforce_plus_plus_outcome_advantage(
        at_the_end(both, REWARDS), both.mask, config=Config(gamma=gamma)
    )
    credit_agrees(both, ReinforcePP(gamma=gamma)(*both.inputs(REWARDS)), advantages)


def loss_agrees(both, numbers, mine, loss, logp):
    G = both.lesson(numbers["advantages"], numbers["old"])
    dlogp, value = mine.coefficients(G, both.pack(numbers["logp"]))
    (gradient,) = torch.autograd.grad(loss, logp)
    assert gradient.abs().max() > 1e-3
    assert_allclose(value, loss.item(), rtol=1e-6)
    assert_allclose(dlogp, both.pack(gradient), rtol=1e-5, atol=1e-8)


AGGREGATIONS = [
    ("token-mean", {"aggregation": "token_mean"}),
    ("seq-mean-token-mean", {"aggregation": "sequence_mean"}),
    ("seq-mean-token-sum", {"aggregation": "sequence_sum"}),
    # without a factor it divides by the width of the padded batch
    ("seq-mean-token-sum-norm", {"aggregation": "sequence_sum_norm", "length": 7.0}),
]


@pytest.mark.parametrize(("mode", "settings"), AGGREGATIONS)
@pytest.mark.parametrize("dual", [None, 1.5])
def test_the_clipped_loss_agrees(verl, both, numbers, mode, settings, dual):
    logp = numbers["logp"].clone().requires_grad_()
    loss, _ = verl.compute_policy_loss_vanilla(
        numbers["old"], logp, numbers["advantages"], both.mask, mode,
        config(clip_ratio_c=dual or 1e9),
    )  # fmt: skip
    mine = PPO(clip_low=0.2, clip_high=0.28, dual_clip=dual, **settings)
    loss_agrees(both, numbers, mine, loss, logp)


def test_the_loss_of_sequences_agrees(verl, both, numbers):
    logp = numbers["logp"].clone().requires_grad_()
    loss, _ = verl.compute_policy_loss_gspo(
        numbers["old"], logp, numbers["advantages"], both.mask, config=config()
    )
    loss_agrees(both, numbers, GSPO(clip_low=0.2, clip_high=0.28), loss, logp)


def test_the_loss_of_clipped_weights_agrees(verl, both, numbers):
    logp = numbers["logp"].clone().requires_grad_()
    loss, _ = verl.compute_policy_loss_cispo(
        numbers["old"], logp, numbers["advantages"], both.mask, "token-mean", config()
    )
    loss_agrees(both, numbers, CISPO(clip_low=0.2, clip_high=0.28), loss, logp)


def test_the_plain_policy_gradient_agrees(verl, both, numbers):
    logp = numbers["logp"].clone().requires_grad_()
    loss, _ = verl.compute_policy_loss_reinforce(
        numbers["old"], logp, numbers["advantages"], both.mask, config=config()
    )
    loss_agrees(both, numbers, Reinforce(aggregation="sequence_sum"), loss, logp)


def test_the_value_loss_agrees(verl, both, numbers):
    values = (numbers["values"] + numbers["ref"] + 1.5).clone().requires_grad_()
    loss, _ = verl.compute_value_loss(
        values, numbers["advantages"], numbers["values"], both.mask, 0.3
    )
    G = both.lesson(
        numbers["advantages"], numbers["old"],
        values=numbers["values"], returns=numbers["advantages"],
    )  # fmt: skip
    objective = PPO(value_coef=1.0, value_clip=0.3)
    dvalues, value = objective.value_coefficients(G, both.pack(values.detach()))
    (gradient,) = torch.autograd.grad(loss, values)
    assert_allclose(value, loss.item(), rtol=1e-6)
    assert_allclose(dvalues, both.pack(gradient), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_estimators_of_kl_agree(verl, numbers, kind):
    theirs = verl.kl_penalty(numbers["logp"], numbers["ref"], kind).numpy()
    assert_allclose(estimate(kind, (numbers["logp"] - numbers["ref"]).numpy()), theirs, rtol=1e-9)


def test_truncated_weights_of_the_engine_agree(verl, both, numbers):
    gap = (numbers["logp"] - numbers["old"]) * both.mask
    theirs, _ = verl.correction.compute_rollout_correction_weights(
        gap, both.mask, rollout_is="token", rollout_is_threshold=1.2
    )
    G = both.lesson(numbers["advantages"], numbers["old"])
    mine = correct(G, both.pack(numbers["logp"]), "truncate", 0.0, 1.2)
    action = both.pack(both.mask) > 0
    assert (mine[action] < 1.2).any()
    assert_allclose(mine[action], both.pack(theirs)[action], rtol=1e-6)


def test_masked_weights_of_the_engine_agree(verl, both, numbers):
    gap = (numbers["logp"] - numbers["old"]) * both.mask
    theirs, _ = verl.correction.compute_rollout_correction_weights(
        gap, both.mask, rollout_is="token", rollout_is_threshold="0.8_1.2"
    )
    G = both.lesson(numbers["advantages"], numbers["old"])
    mine = correct(G, both.pack(numbers["logp"]), "mask", 0.8, 1.2)
    action = both.pack(both.mask) > 0
    assert (mine[action] == 0).any()
    assert_allclose(mine[action], both.pack(theirs)[action], rtol=1e-6)
