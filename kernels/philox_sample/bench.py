"""One decoding step's sampling, against softmax and multinomial, and against sorting for top-p."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..measure import Row, report, to_csv
from . import sample


def _eager(z: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Token and log-probability by torch's own generator; ties in top-p aside."""
    logp = (z.float() / 0.7).log_softmax(-1)
    if top_p < 1:
        ordered, index = logp.sort(dim=-1, descending=True)
        mass = ordered.exp()
        dropped = (mass.cumsum(-1) - mass > top_p).scatter(
            -1, index, mass.cumsum(-1) - mass > top_p
        )
        logp = logp.masked_fill(dropped, -torch.inf).log_softmax(-1)
    token = torch.multinomial(logp.exp(), 1)
    return token, logp.gather(1, token)


def main(rows: Callable[[Row], None], dry: bool) -> None:
    """Measure, and hand every row on; a dry run takes a small shape."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count, vocabulary = (256, 151936) if device == "cuda" else (16, 49152)
    if dry:
        count, vocabulary = 4, 512
    z = 3 * torch.randn(count, vocabulary, device=device)
    key = torch.arange(count, device=device)
    for top_p in (1.0, 0.9):
        named: dict[str, Any] = {"temperature": 0.7, "top_p": top_p}
        calls: dict[str, Callable[[], object]] = {
            "eager": lambda p=top_p: _eager(z, p),  # type: ignore[misc]
            "philox_sample": lambda n=named: sample(z, key, key, **n),  # type: ignore[misc]
        }
        if device == "cuda":
            compiled = torch.compile(_eager)
            calls["compile"] = lambda p=top_p, f=compiled: f(z, p)  # type: ignore[misc]
        shape = f"B={count} V={vocabulary} top_p={top_p}"
        repeats = 1 if dry else 9
        report(rows, "philox_sample", shape, calls, base="eager", repeats=repeats)


if __name__ == "__main__":
    main(to_csv(Path("sweeps/results/kernels.csv")), "--dry" in sys.argv)
