"""The LM head's loss against Liger's chunked GRPO loss, where it is installed.

Liger takes one advantage a sequence, pads, and normalises inside; here the same normaliser is in
the weights. Both clip the ratio to [1 − low, 1 + high] and use k3, whose exponent is clamped here
at ±20 and not there.
"""

from typing import Any

import pytest
import torch

from harness.kernels.linear_policy import Objective, linear_policy

chunked = pytest.importorskip("liger_kernel.chunked_loss", reason="Liger is not installed")

SEQUENCES, LENGTH, VOCABULARY, HIDDEN = 4, 9, 61, 16


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_ppo_with_k3(loss_type: str, beta: float) -> None:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(SEQUENCES, LENGTH, HIDDEN, generator=draw)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=draw)
    bias = torch.randn(VOCABULARY, generator=draw)
    ids = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH), generator=draw)
    lengths = torch.tensor([9, 5, 1, 7])
    mask = (torch.arange(LENGTH) < lengths[:, None]).float()
    logits = (hidden @ weight.t() + bias) / 0.8
    logp = logits.log_softmax(-1).gather(2, ids[..., None])[..., 0]
    old = logp + 0.3 * torch.randn(SEQUENCES, LENGTH, generator=draw)
    ref = logp + 0.3 * torch.randn(SEQUENCES, LENGTH, generator=draw)
    advantages = torch.tensor([1.0, -0.5, 2.0, -1.5])

    theirs = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
    loss_of = chunked.LigerFusedLinearGRPOLoss(
        beta=beta,
        use_ref_model=beta != 0,
        loss_type=loss_type,
        temperature=0.8,
        epsilon_low=0.2,
        epsilon_high=0.28,
        max_completion_length=LENGTH,
        compiled=False,
    )
    named: dict[str, Any] = {"ref_per_token_logps": ref} if beta else {}
    found = loss_of(
        theirs[0],
        theirs[1],
        ids,
        mask,
        advantages,
        theirs[2],
        old_per_token_logps=old,
        **named,
    )
    found[0].backward()

    normaliser = {
        "grpo": mask.sum(1, keepdim=True) * SEQUENCES,
        "bnpo": mask.sum(),
        "dr_grpo": torch.tensor(float(SEQUENCES * LENGTH)),
    }[loss_type]
    ours = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
    loss, _ = linear_policy(
        ours[0].view(-1, HIDDEN),
        ours[1],
        ids.view(-1),
        old_logprobs_T=old.view(-1),
        ref_logprobs_T=ref.view(-1),
        advantages_T=advantages.repeat_interleave(LENGTH),
        weights_T=(mask / normaliser).view(-1),
        objective=Objective(
            "ppo",
            clip_low=0.2,
            clip_high=0.28,
            kl_kind="k3" if beta else None,
            kl_coef=beta,
        ),
        temperature=0.8,
        bias=ours[2],
    )
    loss.backward()
    torch.testing.assert_close(loss, found[0], rtol=1e-5, atol=1e-6)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        assert float(mine.grad.abs().max()) > 1e-3
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
