"""Correction for the difference between the engine that sampled and the one that trains.

    δ_t = logπ_trainer(t) − logπ_rollout(t), both of the starting state
    c_t = 1                                          none
    c_t = min(e^{δ_t}, high), at least low           truncate        (TIS)
    c_t = e^{δ_t} if low <= e^{δ_t} <= high else 0   mask            (IcePop)
    c_t = e^{δ_t} if low <= s_b <= high else 0       sequence_mask   s_b = exp(mean_t δ_t)

Exponents are clamped to ±20. The sequence is judged by its geometric mean, not by its product: a
product masks by length. c is a constant of the loss: no gradient flows through it.

Source: truncate: Yao et al., Your efficient RL framework secretly brings you off-policy training
(2025); mask: Zhao et al., Small leak can sink a great ship (2025).
"""

from __future__ import annotations

import math

import numpy as np

from harness.forms import Lesson

from .weights import episode_of

CORRECTIONS = ("none", "truncate", "mask", "sequence_mask")
CLAMP = 20.0


def check_correction(kind: str, low: float, high: float) -> None:
    """One sentence where the kind is none of these or the bounds exclude 1."""
    if kind not in CORRECTIONS:
        raise ValueError(f"correction is {kind!r}; it is one of {', '.join(CORRECTIONS)}")
    if not (0 <= low <= 1 <= high and math.isfinite(high)):
        raise ValueError(
            f"correction bounds are {low} and {high}; 1, the ratio of equal engines, "
            "lies between them, and low is not negative"
        )


def correct(lesson: Lesson, logp_T: np.ndarray, kind: str, low: float, high: float) -> np.ndarray:
    """correction_T float32: the equations above; 1 outside of actions."""
    action_T = lesson.arrays["is_action"]
    gap_T = np.asarray(logp_T, np.float64) - lesson.arrays["logprobs"]
    delta_T = np.where(action_T, gap_T, 0.0)
    ratio_T = np.exp(np.clip(delta_T, -CLAMP, CLAMP))
    if kind == "none":
        ratio_T = np.ones_like(ratio_T)
    elif kind == "truncate":
        ratio_T = np.clip(ratio_T, low, high)
    else:
        judged_T = ratio_T
        if kind == "sequence_mask":
            episode_T = episode_of(lesson)
            episodes = len(lesson.arrays["episode_offsets"]) - 1
            counts_B = np.bincount(episode_T, action_T, episodes)
            mean_B = np.bincount(episode_T, delta_T, episodes) / np.maximum(counts_B, 1)
            judged_T = np.exp(np.clip(mean_B, -CLAMP, CLAMP))[episode_T]
        ratio_T = np.where((judged_T >= low) & (judged_T <= high), ratio_T, 0.0)
    return np.where(action_T, ratio_T, 1.0).astype(np.float32)
