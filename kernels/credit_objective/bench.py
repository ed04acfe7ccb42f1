"""Generalised advantages of a pack, against a loop over time steps and a scan by doubling."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..measure import Row, report, to_csv
from . import Credit, Packed, credit_objective

GAMMA, LAM = 0.99, 0.95


def loop(rewards_BL: Tensor, values_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """One step of time after the other over a padded batch, carrying across observations."""
    value, advantage = torch.zeros_like(values_BL[:, 0]), torch.zeros_like(values_BL[:, 0])
    found = []
    for t in reversed(range(values_BL.shape[1])):
        m = mask_BL[:, t]
        delta = rewards_BL[:, t] + GAMMA * value - values_BL[:, t]
        current = delta + GAMMA * LAM * advantage
        value = m * values_BL[:, t] + (1 - m) * value
        advantage = m * current + (1 - m) * advantage
        found.append(advantage)
    return torch.stack(found[::-1], 1)


def doubling(rewards_BL: Tensor, values_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """The same by scans that double their reach: 2·log₂ L passes over everything."""

    def scan(a: Tensor, b: Tensor) -> Tensor:
        reach = 1
        while reach < a.shape[1]:
            pad = torch.zeros_like(a[:, :reach])
            b = b + a * torch.cat((b[:, reach:], pad), 1)
            a = a * torch.cat((a[:, reach:], pad), 1)
            reach *= 2
        return b

    ahead = scan(1 - mask_BL, mask_BL * values_BL)
    ahead = torch.cat((ahead[:, 1:], torch.zeros_like(ahead[:, :1])), 1)
    delta = rewards_BL + GAMMA * ahead - values_BL
    return scan(1 - mask_BL + mask_BL * GAMMA * LAM, mask_BL * delta)


def main(rows: Callable[[Row], None], dry: bool) -> None:
    """Measure, and hand every row on; a dry run takes a small pack."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for exponent in (8,) if dry else (14, 16, 18, 20):
        tokens = 2**exponent
        length = min(4096, tokens // 4)
        rewards, values = torch.randn(2, tokens, device=device)
        mask = torch.rand(tokens, device=device) < 0.6
        offsets = torch.arange(0, tokens + 1, length, device=device)
        packed, credit = Packed(offsets, mask, rewards, values), Credit("gae", GAMMA, LAM)
        padded = [x.view(-1, length) for x in (rewards, values, mask.float())]
        right = loop(*padded).view(-1)[mask]
        found = credit_objective(packed, credit).advantages_T[mask]
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
        calls: dict[str, Callable[[], object]] = {
            "loop": lambda given=padded: loop(*given),  # type: ignore[misc]
            "doubling": lambda given=padded: doubling(*given),  # type: ignore[misc]
            "credit_objective": lambda p=packed, c=credit: credit_objective(p, c),  # type: ignore[misc]
        }
        shape = f"T={tokens} L={length} gae"
        report(rows, "credit_objective", shape, calls, base="loop", repeats=1 if dry else 7)


if __name__ == "__main__":
    main(to_csv(Path("sweeps/results/kernels.csv")), "--dry" in sys.argv)
