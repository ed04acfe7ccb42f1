"""One batch in two shapes: padded rows, as the peers take it, and packed, as we do.

Axes: B episodes, L response tokens with padding, T packed tokens.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

ROWS = [[1, 1, 0, 0, 1, 1, 1], [1, 1, 1], [1, 0, 1, 1], [1]]
"""Masks of actions: turns with observations between them, of different lengths."""


@dataclasses.dataclass(frozen=True)
class Both:
    """Padded [B, L] float64 tensors, and the same packed."""

    mask: torch.Tensor
    packed_at: np.ndarray

    def pack(self, padded: Any) -> np.ndarray:
        return np.asarray(padded).reshape(-1)[self.packed_at]

    def lesson(self, advantages: Any, old: Any, **arrays: Any) -> Lesson:
        extra = {name: self.pack(a).astype(np.float32) for name, a in arrays.items()}
        mask = self.pack(self.mask) > 0
        return Lesson(
            {"problems": 2, "attempts": 2, "use": "policy", "unscorable": [], "sampling": {}},
            {
                "token_ids": np.zeros(len(mask), np.int32),
                "is_action": mask,
                "episode_offsets": np.cumsum([0, *map(len, ROWS)]).astype(np.int64),
                "logprobs": np.where(mask, self.pack(old), 0).astype(np.float32),
                "advantages": np.where(mask, self.pack(advantages), 0).astype(np.float32),
                **extra,
            },
        )

    def inputs(self, rewards: Any, **arrays: Any) -> tuple[Instance, Trajectories, Scores, Seed]:
        """X, Z, F and a seed for a credit map."""
        extra = {name: self.pack(a).astype(np.float32) for name, a in arrays.items()}
        G = self.lesson(np.zeros(self.mask.shape), np.zeros(self.mask.shape))
        copied = ("token_ids", "is_action", "episode_offsets", "logprobs")
        Z = Trajectories(
            {"problems": 2, "attempts": 2, "sampling": {}, "episodes": []},
            {name: G.arrays[name] for name in copied} | extra,
        )
        F = Scores({}, {"rewards": np.array(rewards, np.float64)})
        return Instance({}), Z, F, Seed("0" * 32)


@pytest.fixture
def both() -> Both:
    width = max(map(len, ROWS))
    mask = torch.zeros(len(ROWS), width, dtype=torch.float64)
    at = []
    for b, row in enumerate(ROWS):
        mask[b, : len(row)] = torch.tensor(row, dtype=torch.float64)
        at += [b * width + t for t in range(len(row))]
    return Both(mask, np.array(at))


@pytest.fixture
def numbers(both: Both) -> dict[str, torch.Tensor]:
    """Log-probabilities, exact in float32, that leave the clip bounds on both sides."""
    generator = torch.Generator().manual_seed(0)

    def draw(scale: float) -> torch.Tensor:
        drawn = torch.randn(both.mask.shape, generator=generator, dtype=torch.float32)
        return (drawn * scale).double()

    old = draw(0.5) - 1.5
    return {
        "old": old,
        "logp": (old + draw(0.4)).float().double(),
        "ref": draw(0.5) - 1.5,
        "values": draw(1.0),
        "advantages": torch.tensor([1.5, -0.5, -1.0, 2.0])
        .double()[:, None]
        .expand(both.mask.shape),
    }
