"""A soft penalty for long episodes.

    excess = n_b − (max_tokens − buffer)        n_b: tokens that the policy sampled, in all turns
    R_b = −min(excess/buffer, cap)              where excess > 0, else 0

Between max_tokens − buffer and max_tokens it falls from 0 to −1. Above it falls on, as in verl,
AReaL and NeMo-RL; cap 1 stops it there, as in OpenRLHF. Added to others by `sum`, whose weight is
DAPO's factor.

Source: Yu et al., arXiv 2503.14476, section 3.4.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Scores, Trajectories
from harness.round import Seed


@dataclass(frozen=True)
class Overlong:
    """0 for short episodes, falling linearly over the buffer."""

    version: ClassVar[str] = "1"
    max_tokens: int = 512
    """Sampled tokens at which the penalty is 1."""
    buffer: int = 128
    """Sampled tokens before that in which it grows."""
    cap: float | None = None
    """The largest penalty; null: none."""

    def __post_init__(self) -> None:
        if not 0 < self.buffer <= self.max_tokens:
            raise ValueError(
                f"buffer is {self.buffer} and max_tokens {self.max_tokens}; "
                "0 < buffer <= max_tokens"
            )
        if self.cap is not None and not self.cap > 0:
            raise ValueError(f"cap is {self.cap}; it is above 0, or null")

    def __call__(self, X: Instance, Z: Trajectories, seed: Seed) -> Scores:
        sampled_T = np.append(0, np.cumsum(Z.is_action_T, dtype=np.int64))
        lengths_B = np.diff(sampled_T[Z.episode_offsets])
        excess_B = lengths_B - (self.max_tokens - self.buffer)
        cap = np.inf if self.cap is None else self.cap
        penalty_B = np.clip(excess_B / self.buffer, 0.0, cap)
        # 0 − x, so that no penalty is 0 and not −0
        return Scores({"components": ["overlong"]}, {"rewards": 0.0 - penalty_B})
