"""Objectives against TRL's own loss methods, called on a fixed batch.

Where we differ: TRL's `bnpo`, and `grpo` under accumulation, normalise over a micro-batch, ours
over the whole batch; its `cispo` takes an absolute upper bound, ours a distance from 1; its RLOO
loss has one ratio a sequence, a product over tokens, which is ours only where nothing has moved.
"""

import warnings
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from harness.update.objectives.cispo import CISPO
from harness.update.objectives.gspo import GSPO
from harness.update.objectives.ppo import PPO
from harness.update.objectives.reinforce import Reinforce

pytest.importorskip(
    "trl", reason="TRL is not installed here: tests/peers/environment.sh makes a place for it"
)
pytestmark = pytest.mark.filterwarnings("ignore")
WIDE = {"clip_low": 0.2, "clip_high": 0.28}


@pytest.fixture(scope="module")
def trainers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl import GRPOTrainer, RLOOTrainer
    return SimpleNamespace(grpo=GRPOTrainer, rloo=RLOOTrainer)


def theirs(trainer, both, numbers, advantages=None, correction=None, **settings):
    """TRL's loss, and its gradient by log-probability and entropy, packed."""
    logp = numbers["logp"].clone().requires_grad_()
    entropies = torch.zeros_like(logp).requires_grad_()
    args = SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1)
    accelerator = SimpleNamespace(
        num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x
    )
    me = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (logp, entropies, None),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level="token", beta=0.0, args=args, loss_type="dapo",
        epsilon_low=0.2, epsilon_high=0.28, use_vllm=correction is not None,
        vllm_importance_sampling_correction=True, model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1, max_completion_length=7, accelerator=accelerator,
        _entropy_bonus_enabled=False, use_adaptive_entropy=False, entropy_coef=0.0,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )  # fmt: skip
    vars(me).update(settings)
    completion = torch.zeros_like(both.mask)
    for b, row in enumerate(both.mask):
        completion[b, : int(row.nonzero().max()) + 1] = 1
    ids = torch.zeros(both.mask.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids,
        "completion_mask": completion, "tool_mask": both.mask,
        "advantages": numbers["advantages"][:, 0] if advantages is None else advantages,
        "old_per_token_logps": numbers["old"], "ref_per_token_logps": numbers["ref"],
        "num_items_in_batch": both.mask.sum(), "importance_sampling_ratio": correction,
        "old_logps": (numbers["old"] * completion).sum(1),
    }  # fmt: skip
    loss = trainer._compute_loss(me, None, inputs)
    gradients = torch.autograd.grad(loss, (logp, entropies), allow_unused=True)
    return loss.item(), *(None if g is None else both.pack(g) for g in gradients)


def ours(objective, both, numbers, **given):
    G = both.lesson(numbers["advantages"], numbers["old"], ref_logprobs=numbers["ref"])
    dlogp, loss = objective.coefficients(G, both.pack(numbers["logp"]), **given)
    return loss, dlogp


def agree(mine, others):
    assert np.abs(others[1]).max() > 1e-3
    assert_allclose(mine[0], others[0], rtol=1e-6)
    assert_allclose(mine[1], others[1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        (PPO(**WIDE), {"loss_type": "dapo"}),
        (PPO(**WIDE), {"loss_type": "bnpo"}),
        (PPO(aggregation="sequence_mean", **WIDE), {"loss_type": "grpo"}),
        (PPO(aggregation="sequence_sum", **WIDE), {"loss_type": "luspo"}),
        (PPO(aggregation="sequence_sum_norm", length=7, **WIDE), {"loss_type": "dr_grpo"}),
        (PPO(kl="k3", kl_coef=0.3, **WIDE), {"beta": 0.3}),
        (CISPO(clip_high=0.1), {"loss_type": "cispo", "epsilon_high": 1.1}),
    ],
)
def test_losses_of_tokens_agree(trainers, both, numbers, objective, settings):
    agree(ours(objective, both, numbers), theirs(trainers.grpo, both, numbers, **settings))


@pytest.mark.parametrize("form", ["token", "sequence"])
def test_a_ratio_of_sequences_agrees(trainers, both, numbers, form):
    objective = GSPO(form=form, **WIDE)
    settings = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
    agree(ours(objective, both, numbers), theirs(trainers.grpo, both, numbers, **settings))


def test_a_correction_of_the_engine_weighs_the_same(trainers, both, numbers):
    correction = (numbers["ref"] - numbers["old"]).exp().clamp(max=2.0)
    mine = ours(PPO(**WIDE), both, numbers, correction_T=both.pack(correction))
    agree(mine, theirs(trainers.grpo, both, numbers, correction=correction))


def test_an_entropy_bonus_has_the_same_derivative(trainers, both, numbers):
    settings = {"_entropy_bonus_enabled": True, "entropy_coef": 0.4}
    _, _, dentropy = theirs(trainers.grpo, both, numbers, **settings)
    G = both.lesson(numbers["advantages"], numbers["old"])
    assert_allclose(PPO(entropy_coef=0.4).dentropy(G), dentropy, rtol=1e-6)


def test_their_default_bound_of_cispo_is_one_that_we_refuse(trainers, both, numbers):
    # an absolute bound of 0.2 holds every weight below one fifth of what it is on policy
    still = {**numbers, "logp": numbers["old"]}
    _, dlogp, _ = theirs(trainers.grpo, both, still, loss_type="cispo", epsilon_high=0.2)
    mine = ours(CISPO(), both, still)
    assert_allclose(dlogp, 0.2 * mine[1], rtol=1e-6)
    with pytest.raises(ValueError, match="the upper bound of cispo's weight is at least 1"):
        CISPO(clip_high=0.2 - 1)


def test_before_the_first_step_rloo_is_the_policy_gradient_of_sequences(trainers, both, numbers):
    # their loss knows no observations inside of a completion, so these rows have none
    first = numbers["old"].clone()
    whole = type(both)(torch.ones_like(both.mask), np.arange(both.mask.numel()))
    me = {**numbers, "logp": first}
    logp = first.clone().requires_grad_()
    _, dlogp, _ = theirs(trainers.rloo, whole, me)
    assert_allclose(dlogp, -whole.pack(numbers["advantages"]) / 4, rtol=1e-6)
    G = both.lesson(numbers["advantages"], first)
    mine, _ = Reinforce(aggregation="sequence_sum").coefficients(G, both.pack(logp.detach()))
    action = both.pack(both.mask) > 0
    assert_allclose(mine[action], both.pack(dlogp.reshape(both.mask.shape))[action], rtol=1e-6)
