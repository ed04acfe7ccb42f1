"""The maps of credit against the operations that kernels fuse: one mathematics, written twice."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from harness.credit.gae import GAE
from harness.credit.group import Group
from harness.credit.reinforce import Reinforce
from harness.credit.vtrace import VTrace
from harness.kernels.credit_objective import Credit, Packed, credit_objective
from harness.kernels.policy_rows import Outcome

MASKS = [[0, 1, 1, 0, 1], [0, 1], [0, 0], [0, 1, 0, 0, 1, 1, 1]]
REWARDS = [1.0, -0.5, 2.0, 0.25]
rng = np.random.default_rng(0)
VALUES, TARGET = rng.normal(0, 1, 16), rng.normal(-1, 0.5, 16)


def packed(Z, r_T, **given):
    arrays = {name: torch.tensor(x, dtype=torch.float64) for name, x in given.items()}
    return Packed(
        offsets_B1=torch.tensor(Z.episode_offsets),
        mask_T=torch.tensor(Z.is_action_T),
        rewards_T=torch.tensor(r_T, dtype=torch.float64),
        **arrays,
    )


def at_the_end(Z):
    r_T = np.zeros(16)
    for b, (start, end) in enumerate(
        zip(Z.episode_offsets[:-1], Z.episode_offsets[1:], strict=True)
    ):
        actions = np.flatnonzero(Z.is_action_T[start:end])
        if len(actions):
            r_T[start + actions[-1]] = REWARDS[b]
    return r_T


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.7)])
def test_gae_and_vtrace_agree(batch, gamma, lam):
    inputs = batch(REWARDS, 2, masks=MASKS, values=VALUES, target_logprobs=TARGET)
    Z = inputs[1]
    given = {
        "values_T": Z.arrays["values"],
        "logp_T": Z.arrays["target_logprobs"],
        "old_logprobs_T": Z.logprobs_T,
    }
    maps = {
        "gae": GAE(gamma=gamma, lam=lam, normalize=False),
        "vtrace": VTrace(gamma=gamma, lam=lam),
    }
    for kind, credit in maps.items():
        theirs = credit_objective(packed(Z, at_the_end(Z), **given), Credit(kind, gamma, lam))
        mine = credit(*inputs)
        assert_allclose(mine.advantages_T, theirs.advantages_T, rtol=1e-6, atol=1e-7)
        assert_allclose(mine.arrays["returns"], theirs.returns_T, rtol=1e-6, atol=1e-7)
        assert np.abs(mine.advantages_T).max() > 0.5


def test_returns_agree(batch):
    inputs = batch(REWARDS, 2, masks=MASKS)
    credit = Reinforce(gamma=0.8, discount="token", baseline="none")
    theirs = credit_objective(packed(inputs[1], at_the_end(inputs[1])), Credit("returns", 0.8))
    assert_allclose(credit(*inputs).advantages_T, theirs.advantages_T, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("scale", ["group", "none"])
def test_credit_of_groups_agrees(batch, baseline, scale):
    rewards = [1, 0, 0.5, float("nan"), 2, 2]
    inputs = batch(rewards, 3)
    outcome = Outcome(
        torch.tensor(rewards), 3, baseline, "std" if scale == "group" else "none", epsilon=1e-6
    )
    mine = Group(baseline=baseline, scale=scale)(*inputs).advantages_T.reshape(6, 3)[:, 1]
    assert_allclose(mine, outcome.advantages(), rtol=1e-6, atol=1e-7)
