"""The row kernel against float64: forward, gradient, and every awkward row."""

import dataclasses
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
    fused,
    policy_rows,
    token_loss,
)

ROWS = 12
KL = {"kl_kind": "k3", "kl_coef": 0.1}
OBJECTIVES = [
    Objective("reinforce", entropy_coef=0.05),
    Objective("ppo", clip_high=0.28, dual_clip=3.0, kl_kind="k2", kl_coef=0.2),
    Objective("ppo", **KL),
    Objective("cispo", clip_low=1.0, clip_high=4.0, kl_kind="k1", kl_coef=0.1),
    Objective("gspo_token", entropy_coef=-0.01),
    Objective("ce"),
]


def awkward(vocabulary: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits in float32, and targets, of rows that have gone wrong somewhere before."""
    draw = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(ROWS, vocabulary, generator=draw)
    y = torch.randint(0, vocabulary, (ROWS,), generator=draw)
    last = vocabulary - 1
    y[0] = last
    z[1] += 1e4
    z[2] -= 500
    z[3, y[3]] = 60
    z[4, y[4]] = -80
    z[5] = z[5].abs().neg() - 1e3
    if vocabulary > 2:
        masked = torch.arange(vocabulary) % 3 == 1
        masked = masked[None] & (torch.arange(vocabulary)[None] != y[:, None])
        z[6:9] = z[6:9].masked_fill(masked[6:9], -torch.inf)
        # only the target is possible
        z[9] = -torch.inf
        z[9, y[9]] = 1.0
    z[10] = 2.5
    return z, y


def rows_for(z: Tensor, y: Tensor, seed: int = 1, **settings: Any) -> Rows:
    """Inputs near the policy of these logits, in float32."""
    draw = torch.Generator().manual_seed(seed)
    exact, _ = distribution(z.double(), y, **settings)
    exact = exact.nan_to_num(neginf=-100.0)

    def near() -> Tensor:
        return (exact + 0.4 * torch.randn(ROWS, generator=draw)).float()

    weights = torch.rand(ROWS, generator=draw)
    weights[7] = 0
    return Rows(
        y,
        weights_T=weights,
        old_logprobs_T=near(),
        advantages_T=torch.randn(ROWS, generator=draw),
        ref_logprobs_T=near(),
        correction_T=torch.rand(ROWS, generator=draw),
        sequence_log_ratio_T=0.3 * torch.randn(ROWS, generator=draw),
    )


def double(rows: Rows) -> Rows:
    named: dict[str, Any] = {
        field.name: value.double()
        for field in dataclasses.fields(rows)
        if isinstance(value := getattr(rows, field.name), Tensor) and value.is_floating_point()
    }
    if rows.outcome is not None:
        rewards = rows.outcome.rewards_B.double()
        named["outcome"] = dataclasses.replace(rows.outcome, rewards_B=rewards)
    return dataclasses.replace(rows, **named)


def by_torch(z: Tensor, rows: Rows, objective: Objective | None, **settings: Any) -> list[Tensor]:
    """loss, logp, entropy and the gradient of the logits, by the definition and autograd."""
    leaf = z.detach().clone().requires_grad_()
    loss, logp, entropy = policy_rows(leaf, rows, objective=objective, **settings)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return [loss.detach(), logp.detach(), entropy.detach(), gradient]


def by_kernel(
    z: Tensor, rows: Rows, objective: Objective | None, **settings: Any
) -> tuple[Tensor, Tensor]:
    """report and gradient, in buffers of NaN wider than the row."""
    guarded = torch.full((ROWS, z.shape[1] + 7), float("nan"), dtype=z.dtype)
    buffer = guarded[:, 3:-4]
    buffer.copy_(z)
    report = torch.full((len(REPORT), ROWS), float("nan"))
    fused.policy_rows_(
        buffer, rows, report, objective=objective, gradient=True, entropy=True, **settings
    )
    assert bool(guarded[:, :3].isnan().all())
    assert bool(guarded[:, -4:].isnan().all())
    return report, buffer


@pytest.mark.parametrize("vocabulary", [1, 31, 203, 257])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_and_gradient(objective: Objective, vocabulary: int, within: Any) -> None:
    z, y = awkward(vocabulary)
    rows = rows_for(z, y)
    exact = by_torch(z.double(), double(rows), objective)
    native = by_torch(z, rows, objective)
    report, gradient = by_kernel(z, rows, objective)
    for index in (0, 1, 2):
        # a loss cancels where its terms have different signs
        within(report[index], exact[index], native[index], scale=4.0)
    within(gradient, exact[3], native[3], scale=0.05)
    assert vocabulary == 1 or float(gradient.abs().max()) > 0.01


@pytest.mark.parametrize("softcap", [None, 10.0])
@pytest.mark.parametrize("threshold", [None, -4.0])
def test_temperature_soft_cap_and_kept_set(
    softcap: float | None, threshold: float | None, within: Any
) -> None:
    settings: dict[str, Any] = {"temperature": 0.7, "softcap": softcap}
    z, y = awkward(203)
    rows = rows_for(z, y, **settings)
    if threshold is not None:
        rows = dataclasses.replace(rows, threshold_T=torch.full((ROWS,), threshold))
    objective = Objective("ppo", entropy_coef=0.05, **KL)
    exact = by_torch(z.double(), double(rows), objective, **settings)
    native = by_torch(z, rows, objective, **settings)
    report, gradient = by_kernel(z, rows, objective, **settings)
    for index in (0, 1, 2):
        within(report[index], exact[index], native[index], scale=30.0)
    within(gradient, exact[3], native[3], scale=0.5)


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("scale", ["std", "none"])
def test_credit_of_the_group_in_the_same_launch(baseline: Any, scale: Any, within: Any) -> None:
    z, y = awkward(31)
    rewards = torch.tensor([0.35, 0.35, 1.0, 0.7, float("nan"), 0.7])
    rows = dataclasses.replace(
        rows_for(z, y),
        advantages_T=None,
        episode_T=torch.arange(ROWS) // 2,
        outcome=Outcome(rewards, 3, baseline, scale),
    )
    objective = Objective("reinforce")
    exact = by_torch(z.double(), double(rows), objective)
    native = by_torch(z, rows, objective)
    report, gradient = by_kernel(z, rows, objective)
    within(report[0], exact[0], native[0], scale=4.0)
    within(gradient, exact[3], native[3], scale=0.05)
    # one of the second group is unscored, and the others are equal
    assert bool((gradient[6:] == 0).all())
    assert bool((gradient[4] != 0).any())


def test_given_derivatives_of_a_two_pass_loss(within: Any) -> None:
    z, y = awkward(203)
    draw = torch.Generator().manual_seed(3)
    rows = Rows(
        y,
        dlogp_T=torch.randn(ROWS, generator=draw),
        dentropy_T=torch.randn(ROWS, generator=draw),
    )
    exact, native = by_torch(z.double(), double(rows), None), by_torch(z, rows, None)
    report, gradient = by_kernel(z, rows, None)
    within(report[0], exact[0], native[0], scale=60.0)
    within(gradient, exact[3], native[3], scale=0.5)


def test_ratio_clipped_and_kl_are_the_definitions() -> None:
    z, y = awkward(203)
    rows = rows_for(z, y)
    for objective in OBJECTIVES:
        logp, entropy = distribution(z, y)
        terms = token_loss(logp, entropy, rows, objective)
        report, _ = by_kernel(z, rows, objective)
        torch.testing.assert_close(report[3], terms.ratio, rtol=2e-4, atol=1e-6)
        torch.testing.assert_close(report[5], terms.kl, rtol=2e-4, atol=1e-4)
        assert torch.equal(report[4], terms.clipped)


def test_strided_logits_and_expanded_inputs_give_the_same() -> None:
    z, y = awkward(203)
    one = torch.tensor([0.5])
    rows = Rows(y, weights_T=one.expand(ROWS), advantages_T=one.expand(ROWS))
    whole = dataclasses.replace(
        rows, weights_T=torch.full((ROWS,), 0.5), advantages_T=torch.full((ROWS,), 0.5)
    )
    objective = Objective("reinforce")
    for left, right in zip(
        by_kernel(z, rows, objective), by_kernel(z, whole, objective), strict=True
    ):
        assert torch.equal(left, right)
    with pytest.raises(ValueError, match="a row of logits is contiguous"):
        fused.policy_rows_(
            z.t().contiguous().t(),
            rows,
            torch.empty(len(REPORT), ROWS),
            objective=objective,
            gradient=True,
            entropy=False,
        )


def test_a_constant_added_to_a_row_changes_nothing_and_bounds_hold() -> None:
    z, y = awkward(257)
    z = (z * 64).round() / 64
    z[[1, 3, 4]] = z[[10, 0, 11]]
    rows = rows_for(z, y)
    objective = Objective("reinforce", entropy_coef=0.1)
    report, gradient = by_kernel(z, rows, objective)
    shifted_report, shifted_gradient = by_kernel(z + 512, rows, objective)
    assert torch.equal(report, shifted_report)
    assert torch.equal(gradient, shifted_gradient)
    assert bool((report[1] <= 0).all())
    assert bool((report[2] >= 0).all())
    assert bool((report[2] <= torch.tensor(257.0).log() + 1e-5).all())
    assert report[1, 9] == 0 == report[2, 9]


def test_the_reference_equal_to_the_policy_has_no_kl_and_no_ratio() -> None:
    z, y = awkward(203)
    rows = rows_for(z, y)
    report, _ = by_kernel(z, rows, Objective("reinforce"))
    same = dataclasses.replace(rows, old_logprobs_T=report[1], ref_logprobs_T=report[1])
    for kind in ("k1", "k2", "k3"):
        report, _ = by_kernel(z, same, Objective("ppo", kl_kind=kind, kl_coef=0.1))
        assert bool((report[5] == 0).all())
        assert bool((report[3] == 1).all())


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_rows_without_weight_have_zero_gradient_whatever_they_hold() -> None:
    z, y = awkward(203)
    rows = rows_for(z, y)
    z[7] = float("nan")
    broken = rows.advantages_T.clone()  # type: ignore[union-attr]
    broken[7] = float("nan")
    report, gradient = by_kernel(
        z, dataclasses.replace(rows, advantages_T=broken), Objective("ppo", **KL)
    )
    assert bool((gradient[7] == 0).all())
    assert report[0, 7] == 0
    nothing = dataclasses.replace(rows, weights_T=torch.zeros(ROWS))
    report, gradient = by_kernel(z, nothing, Objective("ppo", entropy_coef=0.1, **KL))
    assert bool((gradient == 0).all())
    assert float(report[0].sum()) == 0


def test_a_row_without_a_possible_token_has_no_gradient() -> None:
    z, y = awkward(31)
    z[8] = -torch.inf
    report, gradient = by_kernel(z, rows_for(z, y), Objective("ppo"))
    assert report[1, 8] == -torch.inf
    assert bool((gradient[8] == 0).all())
    assert bool(gradient.isfinite().all())


def test_bfloat16_logits_err_by_the_rounding_of_their_gradient() -> None:
    z, y = awkward(203)
    z = z.bfloat16()
    rows = rows_for(z.float(), y)
    objective = Objective("ppo", **KL)
    exact = by_torch(z.double(), double(rows), objective)
    report, gradient = by_kernel(z, rows, objective)
    assert gradient.dtype == torch.bfloat16
    # the interpreter truncates where hardware rounds: one whole ulp
    eps = torch.finfo(torch.bfloat16).eps
    error = (gradient.double() - exact[3]).abs()
    assert bool((error <= eps * exact[3].abs() + 1e-5).all())
    torch.testing.assert_close(report[1].double(), exact[1], rtol=1e-5, atol=1e-5)


def test_addresses_beyond_32_bits(far_T: Tensor) -> None:
    z = far_T.view(torch.bfloat16).as_strided((3, 61), ((1 << 30) + 16, 1))
    z.copy_(torch.randn(3, 61))
    near = z.clone()
    report = torch.full((len(REPORT), 3), float("nan"))
    far_report = far_T.as_strided(report.shape, ((1 << 31) // (len(REPORT) - 1) + 16, 1), 4096)
    rows = Rows(torch.tensor([60, 0, 7]), weights_T=torch.ones(3), advantages_T=torch.ones(3))
    for logits, written in ((z, far_report), (near, report)):
        fused.policy_rows_(
            logits, rows, written, objective=Objective("reinforce"), gradient=True, entropy=False
        )
    assert torch.equal(z, near)
    assert torch.equal(far_report, report)
