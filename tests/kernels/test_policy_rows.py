"""The loss of a row: published numbers, and the in-place path against the definition."""

from typing import Any

import pytest
import torch
from torch import Tensor

from harness.kernels.policy_rows import (
    REPORT,
    Objective,
    Outcome,
    Rows,
    distribution,
    policy_rows,
    policy_rows_,
    token_loss,
)


def loss_at(ratio: float, advantage: float, objective: Objective, **given: float) -> float:
    """Loss of one token of weight 1 whose ratio to the old policy is known."""
    logp = torch.tensor([-1.0], dtype=torch.float64)
    named = {name: torch.full_like(logp, value) for name, value in given.items()}
    rows = Rows(
        torch.zeros(1, dtype=torch.long),
        weights_T=torch.ones_like(logp),
        old_logprobs_T=logp - torch.tensor(ratio, dtype=torch.float64).log(),
        advantages_T=torch.full_like(logp, advantage),
        **named,
    )
    return float(token_loss(logp, None, rows, objective).loss)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(0.5, 1, -0.5), (0.5, -1, 0.8), (1.5, 1, -1.2), (1.5, -1, 1.5), (5, -1, 3.0)],
)
def test_ppo_with_a_dual_clip(ratio: float, advantage: float, expected: float) -> None:
    assert loss_at(ratio, advantage, Objective("ppo", dual_clip=3.0)) == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", 0.1065306597)])
def test_estimators_of_kl(kind: Any, expected: float) -> None:
    objective = Objective("ce", kl_kind=kind, kl_coef=1.0)
    assert loss_at(1, 0, objective, ref_logprobs_T=-1.5) - 1 == pytest.approx(expected, abs=1e-9)


def test_cispo_weighs_by_the_clipped_ratio_and_correction_multiplies_the_policy_term() -> None:
    objective = Objective("cispo", clip_low=1.0, clip_high=4.0, kl_kind="k1", kl_coef=0.1)
    assert loss_at(8.0, 2.0, objective, correction_T=0.5, ref_logprobs_T=-2.0) == pytest.approx(
        0.5 * 5.0 * 2.0 + 0.1
    )


@pytest.mark.parametrize(
    ("rewards", "baseline", "scale", "epsilon", "expected"),
    [
        ([1, 0, 0, 1], "mean", "std", 1e-6, [0.8660239, -0.8660239, -0.8660239, 0.8660239]),
        ([1, 0, 0, 1], "mean", "std", 1e-4, [0.86587543, -0.86587543, -0.86587543, 0.86587543]),
        ([1, 0, 0, 1], "leave_one_out", "none", 0, [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
        ([1, 0, 0, 0], "mean", "std", 1e-6, [1.499997, -0.499999, -0.499999, -0.499999]),
        ([1, 0, 0, 0], "leave_one_out", "none", 0, [1, -1 / 3, -1 / 3, -1 / 3]),
        ([1, 0], "mean", "std", 1e-6, [0.70710578, -0.70710578]),
        ([0.1, 0.1, 0.1], "mean", "std", 1e-6, [0, 0, 0]),
        ([3.0], "leave_one_out", "std", 1e-6, [0]),
    ],
)
def test_credit_of_groups(
    rewards: list[float], baseline: Any, scale: Any, epsilon: float, expected: list[float]
) -> None:
    given = torch.tensor(rewards, dtype=torch.float64)
    found = Outcome(given, len(rewards), baseline, scale, epsilon).advantages()
    right = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-12)


def test_unscored_episodes_are_left_out_of_their_group() -> None:
    nan = float("nan")
    rewards = torch.tensor([1, nan, 0, 1, nan, nan, nan, 5, nan, nan, nan, nan])
    found = Outcome(rewards, 4, "leave_one_out", "none").advantages()
    torch.testing.assert_close(found, torch.tensor([0.5, 0, -1, 0.5, *[0] * 8]))
    assert bool((found[4:] == 0).all())
    order = torch.tensor([2, 0, 3, 1])
    mixed = Outcome(rewards[:4][order], 4, "leave_one_out", "none").advantages()
    torch.testing.assert_close(mixed, found[:4][order])


def test_nearly_equal_rewards_keep_their_size() -> None:
    rewards = 0.35 + torch.tensor([0.0, 1e-4, 2e-4, 3e-4])
    found = Outcome(rewards, 4).advantages()
    right = Outcome(rewards.double(), 4).advantages()
    torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=0)
    assert float(found.abs().max()) > 1


def far(count: int = 9, vocabulary: int = 203) -> tuple[Tensor, Tensor]:
    """Confident, shifted, negative, masked and flat rows."""
    draw = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(count, vocabulary, generator=draw)
    y = torch.randint(0, vocabulary, (count,), generator=draw)
    z[1] += 1e4
    z[2] -= 500
    z[3, y[3]] = 60
    z[4, y[4]] = -80
    z[5, torch.arange(vocabulary) != y[5]] = -torch.inf
    z[6, torch.arange(vocabulary) % 2 != y[6] % 2] = -torch.inf
    z[7] = 2.5
    return z, y


@pytest.mark.parametrize("objective", [Objective("ppo"), Objective("ppo", entropy_coef=0.1)])
def test_awkward_rows_in_place(objective: Objective, within: Any) -> None:
    z, y = far()
    draw = torch.Generator().manual_seed(1)
    logp, _ = distribution(z.double(), y)
    named = {
        "weights_T": torch.rand(9, generator=draw),
        "old_logprobs_T": (logp + 0.1).float(),
        "advantages_T": torch.randn(9, generator=draw),
    }

    def by_torch(dtype: torch.dtype) -> list[Tensor]:
        leaf = z.clone().to(dtype).requires_grad_()
        rows = Rows(y, **{name: value.to(dtype) for name, value in named.items()})
        loss, logp, entropy = policy_rows(leaf, rows, objective=objective)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return [loss.detach(), logp.detach(), entropy.detach(), gradient]

    exact, native = by_torch(torch.float64), by_torch(torch.float32)
    buffer, report = z.clone(), torch.full((len(REPORT), 9), float("nan"))
    factor = policy_rows_(
        buffer, Rows(y, **named), report, objective=objective, gradient=True, entropy=True
    )
    gradient = buffer if factor is None else buffer * factor[:, None]
    for found, right, own in zip([*report[:3], gradient], exact, native, strict=True):
        within(found, right, own, scale=1.0 if right.ndim == 1 else 0.05)
    assert bool((report[1] <= 0).all())
    assert bool((report[2] >= -1e-6).all())
    assert bool((report[2] <= torch.tensor(203.0).log() + 1e-5).all())


def test_the_ratio_is_bounded_and_its_gradient_with_it() -> None:
    logp = torch.tensor([-1.0, -50.0]).requires_grad_()
    rows = Rows(
        torch.zeros(2, dtype=torch.long),
        weights_T=torch.ones(2),
        old_logprobs_T=torch.tensor([-90.0, -1.0]),
        advantages_T=torch.tensor([-1.0, 1.0]),
    )
    terms = token_loss(logp, None, rows, Objective("ppo"))
    (gradient,) = torch.autograd.grad(terms.loss.sum(), logp)
    torch.testing.assert_close(terms.ratio, torch.tensor([20.0, -20.0]).exp())
    assert bool((gradient == 0).all())


def test_objectives_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="'grpo' is no objective"):
        Objective("grpo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"so that 1 lies between them: not 0\.2, -0\.8"):
        Objective("cispo", clip_high=-0.8)
    with pytest.raises(ValueError, match="dual_clip exceeds"):
        Objective("ppo", dual_clip=1.1)
    with pytest.raises(ValueError, match=r"kl_coef 0\.1 needs kl_kind"):
        Objective("ppo", kl_coef=0.1)
    with pytest.raises(ValueError, match="5 episodes do not divide into groups of 2"):
        Outcome(torch.zeros(5), 2)
