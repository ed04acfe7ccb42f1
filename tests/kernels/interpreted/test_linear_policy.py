"""The chunked LM head around the row kernel, against the materialised definition in float64."""

from typing import Any

import pytest
import torch

from harness.kernels.linear_policy import (
    Objective,
    chunks,
    linear_logprobs,
    linear_policy,
    linear_policy_given,
    reference,
)
from harness.kernels.policy_rows import Rows, fused

TOKENS, VOCABULARY, HIDDEN = 19, 131, 16


@pytest.fixture(autouse=True)
def _rows_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "policy_rows_", fused.policy_rows_)


@pytest.mark.parametrize("chunk_bytes", [None, 5 * VOCABULARY * 4])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients(bias: bool, chunk_bytes: int | None, within: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    operands = [torch.randn(TOKENS, HIDDEN, generator=draw)]
    operands.append(torch.randn(VOCABULARY, HIDDEN, generator=draw))
    if bias:
        operands.append(torch.randn(VOCABULARY, generator=draw))
    targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=draw)
    settings: dict[str, Any] = {"temperature": 0.8, "softcap": 15.0}
    objective = Objective("ppo", kl_kind="k3", kl_coef=0.1, entropy_coef=0.01)
    old = linear_logprobs(*operands[:2], targets, bias=operands[2] if bias else None, **settings)
    assert isinstance(old, torch.Tensor)
    weights = torch.rand(TOKENS, generator=draw)
    weights[3:8] = 0
    named = {
        "old_logprobs_T": old + 0.3 * torch.randn(TOKENS, generator=draw),
        "ref_logprobs_T": old + 0.3 * torch.randn(TOKENS, generator=draw),
        "advantages_T": torch.randn(TOKENS, generator=draw),
        "weights_T": weights,
    }

    def defined(dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in operands]
        rows = Rows(targets, **{name: value.to(dtype) for name, value in named.items()})
        loss, _, _ = reference.linear_policy(
            leaves[0],
            leaves[1],
            rows,
            objective=objective,
            bias=leaves[2] if bias else None,
            **settings,
        )
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    leaves = [x.clone().requires_grad_() for x in operands]
    loss, _ = linear_policy(
        leaves[0],
        leaves[1],
        targets,
        objective=objective,
        bias=leaves[2] if bias else None,
        chunk_bytes=chunk_bytes,
        **settings,
        **named,
    )
    found = [loss.detach(), *torch.autograd.grad(loss, leaves)]
    exact, native = defined(torch.float64), defined(torch.float32)
    for actual, right, own in zip(found, exact, native, strict=True):
        flat = (actual.flatten(), right.flatten(), own.flatten())
        within(*flat, scale=float(right.abs().max()))


def test_given_derivatives_and_scores() -> None:
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(TOKENS, HIDDEN, generator=draw).requires_grad_()
    weight = torch.randn(VOCABULARY, HIDDEN, generator=draw).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=draw)
    given = torch.randn(TOKENS, generator=draw)
    loss, _ = linear_policy_given(hidden, weight, targets, dlogp_T=given, dentropy_T=given.flip(0))
    found = torch.autograd.grad(loss, [hidden, weight])
    rows = Rows(targets, dlogp_T=given, dentropy_T=given.flip(0))
    expected, logp, entropy = reference.linear_policy(hidden, weight, rows, objective=None)
    torch.testing.assert_close(loss, expected)
    for left, right in zip(found, torch.autograd.grad(expected, [hidden, weight]), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
    scored = linear_logprobs(hidden, weight, targets, entropy=True)
    torch.testing.assert_close(scored[0], logp.detach())
    torch.testing.assert_close(scored[1], entropy.detach(), rtol=1e-5, atol=1e-5)
