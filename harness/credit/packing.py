"""From credit of episodes, turns or tokens to Γ, packed as Z is.

Axes: T tokens, B episodes, N turns; see `harness.forms`. Work is float64; Γ holds float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.forms import Lesson, Scores, Trajectories
from harness.identity import evidence

from .statistics import Array, centre, whiten

CARRIED = ("token_ids", "is_action", "episode_offsets", "logprobs", "threshold", "ref_logprobs")
"""Arrays of Z that Γ copies where they are there."""


def episode_of(Z: Trajectories) -> Array:
    """Index of each token's episode."""
    offsets = Z.episode_offsets
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def problem_of(Z: Trajectories) -> Array:
    """Index of each episode's problem."""
    return np.arange(len(Z.episode_offsets) - 1) // max(Z.attempts, 1)


def rewards_of(Z: Trajectories, F: Scores) -> Array:
    """rewards_B in float64, checked against Z."""
    rewards_B = np.asarray(F.rewards_B, np.float64)
    if rewards_B.shape != (len(Z.episode_offsets) - 1,):
        raise ValueError(
            f"feedback has rewards of shape {rewards_B.shape}, "
            f"but there are {len(Z.episode_offsets) - 1} episodes"
        )
    if np.isinf(rewards_B).any():
        raise ValueError("feedback has an infinite reward; it is finite, or NaN if unscorable")
    return rewards_B


def last_action(Z: Trajectories) -> Array:
    """Per episode, the position of its last action token in T; -1 where it has none."""
    position_T = np.where(Z.is_action_T, np.arange(len(Z.token_ids_T)), -1)
    last_B = np.full(len(Z.episode_offsets) - 1, -1, np.int64)
    np.maximum.at(last_B, episode_of(Z), position_T)
    return last_B


def turn_of(Z: Trajectories) -> Array:
    """Index in N of each token's turn; -1 outside of the turns' actions."""
    turn_T = np.full(len(Z.token_ids_T), -1, np.int64)
    start_N, end_N = Z.arrays["turn_start"], Z.arrays["turn_end"]
    lengths_N = end_N - start_N
    at = np.repeat(start_N, lengths_N) + _within(lengths_N)
    turn_T[at] = np.repeat(np.arange(len(start_N)), lengths_N)
    return turn_T


def _within(lengths: Array) -> Array:
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def spread_turns(Z: Trajectories, credit_N: Array) -> Array:
    """Credit of turns on the tokens of their actions; 0 elsewhere."""
    turn_T = turn_of(Z)
    # index -1, outside of all turns, reads the appended 0
    return np.append(credit_N, 0.0)[turn_T]


def whitened(Z: Trajectories, F: Scores, values_T: Array) -> Array:
    """Mean 0 and variance 1 over the action tokens of scorable episodes; 0 elsewhere."""
    kept_T = Z.is_action_T & ~np.isnan(rewards_of(Z, F))[episode_of(Z)]
    result_T = np.zeros(len(values_T), np.float64)
    result_T[kept_T] = whiten(values_T[kept_T])
    return result_T


def lesson(
    Z: Trajectories,
    F: Scores,
    advantages_T: Array,
    *,
    use: str = "policy",
    meta: Mapping[str, Any] | None = None,
    **arrays: Array,
) -> Lesson:
    """Γ with these advantages, zero outside of actions and for unscorable episodes."""
    rewards_B = rewards_of(Z, F)
    unscorable_B = np.isnan(rewards_B)
    kept_T = Z.is_action_T & ~unscorable_B[episode_of(Z)]
    advantages_T = np.where(kept_T, advantages_T, 0.0).astype(np.float32)
    if not np.isfinite(advantages_T).all():
        t = int(np.flatnonzero(~np.isfinite(advantages_T))[0])
        raise ValueError(f"credit gives token {t} the advantage {advantages_T[t]}; it is finite")
    carried = {name: Z.arrays[name] for name in CARRIED if name in Z.arrays}
    return Lesson(
        {
            "problems": Z.problems,
            "attempts": Z.attempts,
            "sampling": Z.meta["sampling"],
            "use": use,
            "pairs": [],
            "unscorable": np.flatnonzero(unscorable_B).tolist(),
            "statistics": statistics(Z, rewards_B),
            **(meta or {}),
        },
        {**carried, **{name: a.astype(np.float32) for name, a in arrays.items()},
         "advantages": advantages_T},
    )  # fmt: skip


def statistics(Z: Trajectories, rewards_B: Array) -> dict[str, Any]:
    """For people: of the scored rewards, and of groups that teach nothing."""
    scored_B = ~np.isnan(rewards_B)
    total = centre(rewards_B, np.zeros(len(rewards_B), np.int64))
    groups = centre(rewards_B, problem_of(Z))
    first_P = slice(None, None, max(Z.attempts, 1))
    return {
        "reward_mean": evidence(total.mean[0] if scored_B.any() else np.nan),
        "reward_std": evidence(total.std[0] if scored_B.any() else np.nan),
        "constant_groups": int(groups.constant[first_P].sum()),
        "unscorable": int((~scored_B).sum()),
    }
