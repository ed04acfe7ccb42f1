"""The LM head with a PPO loss, forward and backward, against what others do with the same inputs.

Providers: `floor`, the three matrix products alone; `plain`, log-softmax of materialised logits;
`compile`, the same through torch.compile; `liger`, Liger's chunked GRPO loss, if installed.
"""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..measure import Row, report, to_csv
from . import Objective, linear_policy

CPU_SHAPES = ((4096, 49152, 576), (2048, 151936, 896))
CUDA_SHAPES = ((16384, 151936, 4096),)


def _plain(h: Tensor, w: Tensor, y: Tensor, old: Tensor, a: Tensor, weight: Tensor) -> Tensor:
    logp = (h @ w.t()).float().log_softmax(-1).gather(1, y[:, None])[:, 0]
    ratio = (logp - old).exp()
    return (weight * torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.2))).sum()


def _liger(y: Tensor, old: Tensor, a: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Its loss over 8 sequences with one advantage each; loss type bnpo is the mean over tokens."""
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    loss = LigerFusedLinearGRPOLoss(beta=0.0, loss_type="bnpo", use_ref_model=False, compiled=False)
    ids, old_logps, mask = y.view(8, -1), old.view(8, -1), torch.ones_like(y.view(8, -1))

    def call(h: Tensor, w: Tensor) -> Tensor:
        hidden = h.view(8, ids.shape[1], -1)
        found = loss(hidden, w, ids, mask, a.view(8, -1)[:, 0], old_per_token_logps=old_logps)
        value: Tensor = found[0]
        return value

    return call


def measure_shape(rows: Callable[[Row], None], shape: tuple[int, int, int], dry: bool) -> None:
    """All providers on one shape."""
    tokens, vocabulary, width = shape
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    h = torch.randn(tokens, width, device=device, dtype=dtype).requires_grad_()
    w = (0.05 * torch.randn(vocabulary, width, device=device)).to(dtype).requires_grad_()
    y = torch.randint(0, vocabulary, (tokens,), device=device)
    old = torch.full((tokens,), -float(torch.tensor(vocabulary).log()), device=device)
    a = torch.randn(8, device=device).repeat_interleave(tokens // 8)
    weight = torch.full((tokens,), 1 / tokens, device=device)
    chunk = min(tokens, 4096 if device == "cuda" else 512)

    def step(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
        def call() -> None:
            torch.autograd.backward(loss(h, w))
            # so that every provider's memory is counted with its gradients
            h.grad = w.grad = None

        return call

    def ours(hidden: Tensor, head: Tensor) -> Tensor:
        named: dict[str, Any] = {"old_logprobs_T": old, "advantages_T": a, "weights_T": weight}
        return linear_policy(hidden, head, y, objective=Objective("ppo"), **named)[0]

    @torch.no_grad()
    def floor() -> None:
        logits = torch.empty(chunk, vocabulary, device=device, dtype=dtype)
        total = torch.zeros(vocabulary, width, device=device, dtype=dtype)
        for start in range(0, tokens, chunk):
            part = h[start : start + chunk]
            torch.mm(part, w.t(), out=logits[: len(part)])
            torch.mm(logits[: len(part)], w)
            total.addmm_(logits[: len(part)].t(), part)

    def plain(hidden: Tensor, head: Tensor) -> Tensor:
        return _plain(hidden, head, y, old, a, weight)

    calls: dict[str, Callable[[], object]] = {
        "floor": floor,
        "plain": step(plain),
        "linear_policy": step(ours),
    }
    peers: dict[str, str] = {}
    if importlib.util.find_spec("liger_kernel"):
        calls["liger"] = step(_liger(y, old, a))
        peers["liger"] = importlib.metadata.version("liger-kernel")
    if device == "cuda":
        compiled = torch.compile(_plain)
        calls["compile"] = step(lambda hidden, head: compiled(hidden, head, y, old, a, weight))
    name = f"T={tokens} V={vocabulary} H={width} {str(dtype).removeprefix('torch.')}"
    report(
        rows,
        "linear_policy",
        name,
        calls,
        base="plain",
        repeats=1 if dry else 3,
        memory=True,
        peers=peers,
    )


def main(rows: Callable[[Row], None], dry: bool) -> None:
    """Measure, and hand every row on; a dry run takes small shapes."""
    shapes = CUDA_SHAPES if torch.cuda.is_available() else CPU_SHAPES
    for shape in ((64, 256, 16),) if dry else shapes:
        measure_shape(rows, shape, dry)


if __name__ == "__main__":
    main(to_csv(Path("sweeps/results/kernels.csv")), "--dry" in sys.argv)
