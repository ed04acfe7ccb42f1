"""A chunk of logits to loss and gradient, against eager torch and torch.compile."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..measure import Row, report, to_csv
from . import REPORT, Objective, Rows, policy_rows, policy_rows_


def main(rows: Callable[[Row], None], dry: bool) -> None:
    """Measure, and hand every row on; a dry run takes a small shape."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count, vocabulary = (4096, 151936) if device == "cuda" else (512, 49152)
    if dry:
        count, vocabulary = 8, 512
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    z = torch.randn(count, vocabulary, device=device, dtype=dtype)
    line = torch.full((count,), -10.0, device=device)
    y = torch.randint(0, vocabulary, (count,), device=device)
    row = Rows(y, weights_T=-line, old_logprobs_T=line, advantages_T=line)
    objective = Objective("ppo", entropy_coef=0.01)
    buffer, results = z.clone(), torch.empty(len(REPORT), count, device=device)

    def ours() -> None:
        buffer.copy_(z)
        named: dict[str, Any] = {"objective": objective, "gradient": True, "entropy": True}
        policy_rows_(buffer, row, results, **named)

    def eager_loss(logits: Tensor) -> Tensor:
        return policy_rows(logits.float(), row, objective=objective)[0].sum()

    def step(loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def call() -> None:
            leaf = z.detach().requires_grad_()
            torch.autograd.grad(loss(leaf), leaf)

        return call

    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: buffer.copy_(z),
        "eager": step(eager_loss),
        "policy_rows": ours,
    }
    if device == "cuda":
        calls["compile"] = step(torch.compile(eager_loss))
    shape = f"T={count} V={vocabulary} {str(dtype).removeprefix('torch.')}"
    report(rows, "policy_rows", shape, calls, base="eager", repeats=1 if dry else 5, memory=True)


if __name__ == "__main__":
    main(to_csv(Path("sweeps/results/kernels.csv")), "--dry" in sys.argv)
