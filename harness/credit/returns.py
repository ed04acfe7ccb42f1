"""Rewards of tokens, and the reverse recurrences over them, in float64.

    y_t = b_t + a_t·y_{t+1},    y beyond the last token of an episode is 0

A reward lies on an action token: what an observation token would carry belongs to the last action
before it, so that no reward is lost between turns.
"""

from __future__ import annotations

import numpy as np

from harness.forms import Scores, Trajectories

from .packing import episode_of, last_action, rewards_of
from .statistics import Array

PLACES = ("turn", "episode")


def check_returns(rewards: str, gamma: float, lam: float = 1.0) -> None:
    """One sentence where rewards have no such place, or a discount is none."""
    if rewards not in PLACES:
        raise ValueError(f"rewards is {rewards!r}; it is one of {', '.join(PLACES)}")
    if not (0 <= gamma <= 1 and 0 <= lam <= 1):
        raise ValueError(f"gamma is {gamma} and lam {lam}; a discount lies between 0 and 1")


def token_rewards(Z: Trajectories, F: Scores, rewards: str) -> Array:
    """rewards_T whose sum over an episode is its reward R_b; 0 for unscorable episodes.

    `turn`: turn rewards, where the feedback has them, on the last token of their turn, and the rest
    of R_b on the last action token. `episode`: all of R_b there. Penalties (`kl_in_reward`) stay on
    their tokens. An episode without actions keeps no reward: there is nothing to credit.
    """
    rewards_B, last_B = rewards_of(Z, F), last_action(Z)
    scored_B = np.nan_to_num(rewards_B, nan=0.0)
    placed_T = np.zeros(len(Z.token_ids_T), np.float64)
    if "token_penalties" in F.arrays:
        placed_T -= F.arrays["token_penalties"]
    if rewards == "turn" and "turn_rewards" in F.arrays:
        start_N, end_N = Z.arrays["turn_start"], Z.arrays["turn_end"]
        real_N = end_N > start_N
        np.add.at(placed_T, end_N[real_N] - 1, F.arrays["turn_rewards"][real_N])
    episode_T = episode_of(Z)
    rest_B = scored_B - np.bincount(episode_T, placed_T, len(scored_B))
    has_B = last_B >= 0
    placed_T[last_B[has_B]] += rest_B[has_B]
    placed_T[np.isnan(rewards_B)[episode_T]] = 0.0
    return placed_T


def reverse_scan(a: Array, b: Array) -> Array:
    """y_t = b_t + a_t·y_{t+1} in ⌈log₂ longest⌉ vectorised passes; a is 0 where a segment ends."""
    a, y, k = a.copy(), b.copy(), 1
    if len(a):
        a[-1] = 0.0
    while a.any():
        y[:-k] += a[:-k] * y[k:].copy()
        a[:-k] *= a[k:].copy()
        a[-k:] = 0.0
        k *= 2
    return y


def discounts(Z: Trajectories, gamma: float, per: str) -> Array:
    """a_T of a return: gamma after each action token (`token`) or turn (`turn`), 1 elsewhere, 0 at
    the end of an episode."""
    a_T = np.ones(len(Z.token_ids_T), np.float64)
    if per == "token":
        a_T[Z.is_action_T] = gamma
    else:
        start_N, end_N = Z.arrays["turn_start"], Z.arrays["turn_end"]
        a_T[end_N[end_N > start_N] - 1] = gamma
    offsets = Z.episode_offsets
    a_T[offsets[1:][np.diff(offsets) > 0] - 1] = 0.0
    return a_T


def turn_returns(Z: Trajectories, F: Scores, gamma: float) -> Array:
    """G_k = r_k + gamma·G_{k+1} over the turns of an episode; NaN for unscorable episodes.

    Turn rewards are the feedback's where it has them; the rest of an episode's reward comes with
    its last turn.
    """
    turn_episode_N = Z.arrays["turn_episode"]
    rewards_B = rewards_of(Z, F)
    given = F.arrays.get("turn_rewards")
    r_N = np.zeros(len(turn_episode_N)) if given is None else np.array(given, np.float64)
    last_N = np.diff(turn_episode_N, append=-1) != 0
    rest_B = rewards_B - np.bincount(turn_episode_N, r_N, len(rewards_B))
    r_N[last_N] += np.nan_to_num(rest_B[turn_episode_N[last_N]], nan=0.0)
    G_N = reverse_scan(np.where(last_N, 0.0, gamma), r_N)
    return np.where(np.isnan(rewards_B)[turn_episode_N], np.nan, G_N)
