"""What the pages say of a record: numbers by episode.

Axes as in `harness.forms`: B episodes, T tokens, N turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.forms import Stop
from harness.round import Decision, Record

STOPS = {
    Stop.TERMINATED: "ended by the environment",
    Stop.TOKEN_BUDGET: "out of tokens",
    Stop.TURN_BUDGET: "out of turns",
    Stop.TOOL_FAILURE: "stopped by a failed tool",
    Stop.TIMEOUT: "timed out",
    Stop.INVALID_ACTION: "stopped by an invalid action",
    Stop.CONTEXT_FULL: "out of context",
}


@dataclass(frozen=True)
class Reading:
    """A record with its numbers by episode; means are NaN where nothing was sampled."""

    record: Record
    rewards_B: np.ndarray
    lengths_B: np.ndarray
    sampled_B: np.ndarray
    turns_B: np.ndarray
    logprob_B: np.ndarray
    advantage_B: np.ndarray
    credit_T: np.ndarray
    """Advantages aligned with the tokens of Z; zeros where Γ is packed in another way."""
    scale: float
    """The size of credit that is drawn at full strength."""

    @property
    def attempts(self) -> int:
        return max(int(self.record.Z.attempts), 1)

    @property
    def accepted(self) -> bool:
        return self.record.proposal.decision is Decision.ACCEPT

    @property
    def gates(self) -> list[dict[str, Any]]:
        return list(self.record.proposal.report.get("gates", ()))

    @property
    def metrics(self) -> dict[str, Any]:
        return dict(self.record.proposal.report.get("metrics", {}))

    @property
    def reward(self) -> tuple[float, float]:
        """Mean and standard deviation of the scored rewards."""
        scored = self.rewards_B[~np.isnan(self.rewards_B)]
        return (float(scored.mean()), float(scored.std())) if len(scored) else (np.nan, np.nan)

    def stop(self, b: int) -> Stop:
        return Stop(int(self.record.Z.stop_B[b]))

    def stops(self) -> list[tuple[str, int]]:
        """Why episodes ended, in words, with how many did."""
        counts = np.bincount(self.record.Z.stop_B, minlength=len(STOPS))
        return [(words, int(counts[stop])) for stop, words in STOPS.items() if counts[stop]]


def read(record: Record) -> Reading:
    """The numbers of a record."""
    Z, offsets = record.Z, record.Z.episode_offsets
    credit_T = record.G.arrays.get("advantages", np.zeros(0))
    if len(credit_T) != len(Z.token_ids_T):
        credit_T = np.zeros(len(Z.token_ids_T))
    credit_T = np.where(Z.is_action_T, credit_T, 0.0).astype(np.float64)
    sampled_B = _sums(Z.is_action_T, offsets).astype(np.int64)
    some_B = np.where(sampled_B > 0, sampled_B, np.nan)
    size_T = np.abs(credit_T[np.isfinite(credit_T) & (credit_T != 0)])
    episodes = len(offsets) - 1
    return Reading(
        record,
        rewards_B=np.asarray(record.F.rewards_B, np.float64),
        lengths_B=np.diff(offsets),
        sampled_B=sampled_B,
        turns_B=np.bincount(Z.arrays["turn_episode"], minlength=episodes),
        logprob_B=_sums(np.where(Z.is_action_T, Z.logprobs_T, 0.0), offsets) / some_B,
        advantage_B=_sums(credit_T, offsets) / some_B,
        credit_T=credit_T,
        # the largest, but a few far out may not pale all others
        scale=float(min(size_T.max(), 3 * np.quantile(size_T, 0.98))) if len(size_T) else 1.0,
    )


def _sums(values_T: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Sums over each episode."""
    total = np.concatenate([[0.0], np.cumsum(values_T, dtype=np.float64)])
    return total[offsets[1:]] - total[offsets[:-1]]
