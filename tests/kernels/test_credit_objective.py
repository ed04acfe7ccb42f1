"""Credit of packed trajectories on the CPU: published numbers, step by step, and packing."""

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.kernels.credit_objective import Credit, Packed, credit_objective, reverse_scan
from harness.kernels.policy_rows import Objective, Outcome

MASK = torch.tensor([1, 1, 0, 0, 1, 1]).bool()


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_gae_skips_observations() -> None:
    given = Packed(
        torch.tensor([0, 6]), MASK, doubles(0, 0, 0, 0, 0, 1), doubles(0.1, 0.2, 0.9, 0.8, 0.3, 0.4)
    )
    found = credit_objective(given, Credit("gae", lam=0.5)).advantages_T
    torch.testing.assert_close(found, doubles(0.25, 0.30, 0, 0, 0.4, 0.6))


def test_returns_are_carried_across_observations() -> None:
    given = Packed(torch.tensor([0, 6]), MASK, doubles(0, 0, 0, 0, 0, 1))
    found = credit_objective(given, Credit("returns")).returns_T
    torch.testing.assert_close(found, doubles(1, 1, 0, 0, 1, 1))


def packed(lengths: list[int], seed: int = 0) -> Packed:
    draw = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)

    def normal(count: int = tokens) -> Tensor:
        return torch.randn(count, generator=draw, dtype=torch.float64)

    logp = -normal().abs()
    return Packed(
        torch.tensor([0, *lengths]).cumsum(0),
        torch.rand(tokens, generator=draw) < 0.6,
        rewards_T=normal(),
        values_T=normal(),
        bootstrap_B=normal(len(lengths)),
        discount_T=torch.rand(tokens, generator=draw, dtype=torch.float64),
        logp_T=logp,
        old_logprobs_T=logp + 0.3 * normal(),
        weights_T=torch.rand(tokens, generator=draw, dtype=torch.float64),
    )


def step_by_step(given: Packed, credit: Credit) -> tuple[Tensor, Tensor]:
    """The recursions as the equations say them, one action after the other."""
    advantages, returns = torch.zeros_like(given.weights_T), torch.zeros_like(given.weights_T)
    for episode, (start, end) in enumerate(pairwise(given.offsets_B1.tolist())):
        value_next = return_next = given.bootstrap_B[episode]
        advantage_next = y_next = doubles(0)[0]
        for t in reversed(range(start, end)):
            if not given.mask_T[t]:
                continue
            gamma, reward = credit.gamma * given.discount_T[t], given.rewards_T[t]
            value = given.values_T[t]
            delta = reward + gamma * value_next - value
            ratio = (given.logp_T[t] - given.old_logprobs_T[t]).exp()
            rho, c = ratio.clamp(max=credit.rho_clip), ratio.clamp(max=credit.c_clip)
            if credit.kind == "returns":
                returns[t] = return_next = reward + gamma * return_next
                advantages[t] = returns[t] - value
            elif credit.kind == "gae":
                advantages[t] = advantage_next = delta + gamma * credit.lam * advantage_next
                returns[t] = advantages[t] + value
            else:
                advantages[t] = rho * (delta + gamma * y_next)
                y_next = rho * delta + gamma * credit.lam * c * y_next
                returns[t] = value + y_next
            value_next = value
    return advantages, returns


@pytest.mark.parametrize("kind", ["returns", "gae", "vtrace"])
def test_recursions_step_by_step(kind: Any) -> None:
    given, credit = packed([5, 0, 1, 70, 33]), Credit(kind, 0.97, 0.9, c_clip=0.95)
    found, expected = credit_objective(given, credit), step_by_step(given, credit)
    torch.testing.assert_close(found.advantages_T, expected[0])
    torch.testing.assert_close(found.returns_T, expected[1])
    assert float(found.advantages_T.abs().max()) > 0.1


@pytest.mark.parametrize("length", [0, 1, 2, 15, 16, 17, 255, 257, 5000])
def test_the_scan_at_every_length(length: int) -> None:
    draw = torch.Generator().manual_seed(length)
    a = torch.rand(length, generator=draw, dtype=torch.float64)
    b = torch.randn(length, generator=draw, dtype=torch.float64)
    y, right = 0.0, []
    for a_t, b_t in zip(a.flip(0).tolist(), b.flip(0).tolist(), strict=True):
        y = b_t + a_t * y
        right.append(y)
    torch.testing.assert_close(reverse_scan(a, b), doubles(*right).flip(0))


def test_packing_order_and_company_change_nothing() -> None:
    lengths = [5, 0, 1, 70, 33]
    given, credit, objective = packed(lengths), Credit("gae", 0.97, 0.9), Objective("gspo_token")
    whole = credit_objective(given, credit, objective)
    parts: list[Tensor] = []
    for episode, (start, end) in enumerate(pairwise(given.offsets_B1.tolist())):
        named = {
            field.name: getattr(given, field.name)[start:end]
            for field in dataclasses.fields(given)
            if field.name.endswith("_T") and getattr(given, field.name) is not None
        }
        assert given.bootstrap_B is not None
        boot = given.bootstrap_B[episode : episode + 1]
        alone = Packed(torch.tensor([0, end - start]), bootstrap_B=boot, **named)
        found = credit_objective(alone, credit, objective)
        torch.testing.assert_close(found.advantages_T, whole.advantages_T[start:end])
        assert found.dlogp_T is not None
        assert found.sums_KB is not None
        assert whole.sums_KB is not None
        torch.testing.assert_close(found.sums_KB[:, 0], whole.sums_KB[:, episode])
        parts.append(found.dlogp_T)
    torch.testing.assert_close(torch.cat(parts), whole.dlogp_T)


def test_token_form_and_sequence_form_of_gspo_have_one_gradient() -> None:
    given = packed([40, 30])
    reward = Outcome(doubles(1, 0), 2)
    actions = torch.stack([part.sum() for part in given.mask_T.split([40, 30])])
    weights = (1 / actions.double()).repeat_interleave(torch.tensor([40, 30]))
    given = dataclasses.replace(given, outcome=reward, weights_T=weights)
    found = credit_objective(given, Credit("outcome"), Objective("gspo_token", 5.0, 5.0))
    assert given.logp_T is not None
    leaf = given.logp_T.clone().requires_grad_()
    total = doubles(0)[0]
    for part, advantage in ((slice(0, 40), 0.70710578), (slice(40, 70), -0.70710578)):
        held = given.mask_T[part]
        gap = (leaf[part] - given.old_logprobs_T[part])[held]  # type: ignore[index]
        total = total - advantage * gap.mean().exp()
    (gradient,) = torch.autograd.grad(total, leaf)
    assert found.loss is not None
    torch.testing.assert_close(found.dlogp_T, gradient, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.loss, total.detach(), rtol=1e-6, atol=1e-9)


def test_the_loss_is_differentiable_by_its_log_probabilities() -> None:
    given = packed([9, 8])
    assert given.logp_T is not None
    leaf = given.logp_T.clone().requires_grad_()
    tracked = dataclasses.replace(given, logp_T=leaf)
    found = credit_objective(tracked, Credit("gae"), Objective("ppo"))
    assert found.loss is not None
    (gradient,) = torch.autograd.grad(2 * found.loss, leaf)
    torch.testing.assert_close(gradient, 2 * found.dlogp_T)  # type: ignore[operator]
    assert float(gradient.abs().max()) > 0
    none = dataclasses.replace(tracked, mask_T=torch.zeros_like(given.mask_T))
    still = credit_objective(none, Credit("gae"), Objective("ppo"))
    assert still.loss is not None
    (gradient,) = torch.autograd.grad(still.loss, leaf)
    assert still.loss == 0
    assert bool((gradient == 0).all())


def test_what_cannot_be_is_refused() -> None:
    given = packed([4])
    with pytest.raises(ValueError, match="objective need values_T"):
        credit_objective(dataclasses.replace(given, values_T=None), Credit("gae"))
    with pytest.raises(ValueError, match="an outcome is given for the kind 'outcome'"):
        credit_objective(given, Credit("outcome"))
    with pytest.raises(ValueError, match="gamma and lam lie in"):
        Credit("gae", gamma=1.5)
    with pytest.raises(ValueError, match="an entropy bonus needs the whole distribution"):
        credit_objective(given, Credit("gae"), Objective("ppo", entropy_coef=0.1))
