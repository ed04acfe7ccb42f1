"""Generalised advantages and group credit of a pack, against loops and a scan by doubling."""

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ..measure import Row, report, to_csv
from ..policy_rows import Outcome
from . import Credit, Packed, credit_objective

GAMMA, LAM, GROUP = 0.99, 0.95, 4


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


def grouped(rewards_BL: Tensor, mask_BL: Tensor, groups_B: list[int]) -> Tensor:
    """Credit of groups, one trajectory after the other: rewards about their group's mean, over its
    std."""
    scores_B = rewards_BL.sum(1)
    of_group: dict[int, list[Tensor]] = defaultdict(list)
    for group, score in zip(groups_B, scores_B, strict=True):
        of_group[group].append(score)
    mean = {group: torch.stack(scores).mean() for group, scores in of_group.items()}
    std = {group: torch.stack(scores).std() for group, scores in of_group.items()}
    for b, group in enumerate(groups_B):
        scores_B[b] = (scores_B[b] - mean[group]) / (std[group] + 1e-6)
    return scores_B[:, None] * mask_BL


def measure_pack(rows: Callable[[Row], None], tokens: int, length: int, repeats: int) -> None:
    """Trajectories of one length without padding, the case that suits a loop over [B, L] best: it
    takes L steps of B rows."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rewards, values = torch.randn(2, tokens, device=device)
    mask = torch.rand(tokens, device=device) < 0.6
    offsets = torch.arange(0, tokens + 1, length, device=device)
    packed, credit = Packed(offsets, mask, rewards, values), Credit("gae", GAMMA, LAM)
    padded = [x.view(-1, length) for x in (rewards, values, mask.float())]
    right = loop(*padded).view(-1)[mask]
    found = credit_objective(packed, credit).advantages_T[mask]
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
    shape = f"T={tokens} L={length}"
    calls: dict[str, Callable[[], object]] = {
        "loop": lambda: loop(*padded),
        "doubling": lambda: doubling(*padded),
        "credit_objective": lambda: credit_objective(packed, credit),
    }
    report(rows, "credit_objective", f"{shape} gae", calls, base="loop", repeats=repeats)

    groups_B = [b // GROUP for b in range(tokens // length)]
    group = Credit("outcome")

    def outcome() -> Tensor:
        scores_B = rewards.view(-1, length).sum(1)
        given = Packed(offsets, mask, outcome=Outcome(scores_B, GROUP))
        return credit_objective(given, group).advantages_T

    right = grouped(padded[0], padded[2], groups_B).view(-1)
    torch.testing.assert_close(outcome(), right, rtol=1e-4, atol=1e-4)
    calls = {"loop": lambda: grouped(padded[0], padded[2], groups_B), "credit_objective": outcome}
    report(rows, "credit_objective", f"{shape} group", calls, base="loop", repeats=repeats)


def main(rows: Callable[[Row], None], dry: bool) -> None:
    """Measure, and hand every row on; a dry run takes a small pack."""
    for exponent in (8,) if dry else (14, 16, 18, 20):
        for length in (32,) if dry else (1024, 4096):
            measure_pack(rows, 2**exponent, length, 1 if dry else 7)


if __name__ == "__main__":
    main(to_csv(Path("sweeps/results/kernels.csv")), "--dry" in sys.argv)
