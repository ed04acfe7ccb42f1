"""Per-token weights of a loss, computed once over the whole batch, with every normaliser inside.

    loss = Σ_t w_t·ℓ_t        so that any split into micro-batches or ranks gives the same gradient

    token_mean          w_t = 1/Σ_b n_b              (DAPO, arXiv 2503.14476)
    sequence_mean       w_t = 1/(B·n_b)              (GRPO, arXiv 2402.03300: mean of token means)
    sequence_sum        w_t = 1/B                    (mean over episodes of token sums)
    sequence_sum_norm   w_t = 1/(B·length)           (Dr. GRPO, arXiv 2503.20783)

n_b counts the used tokens of episode b, B the episodes that have any. Episodes that are unscorable
are not used; those whose credit is 0 are, and the denominators count them. No used token: all zero.
"""

from __future__ import annotations

import math

import numpy as np

from harness.forms import Lesson

AGGREGATIONS = ("token_mean", "sequence_mean", "sequence_sum", "sequence_sum_norm")


def check_aggregation(aggregation: str, length: float | None) -> None:
    """One sentence where the aggregation is none, or lacks its constant."""
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation is {aggregation!r}; it is one of {', '.join(AGGREGATIONS)}")
    if (length is not None) != (aggregation == "sequence_sum_norm"):
        raise ValueError(
            f"length is {length} with aggregation {aggregation}; sequence_sum_norm needs the "
            "constant that it divides by, such as the token budget, and no other takes one"
        )
    if length is not None and not (math.isfinite(length) and length > 0):
        raise ValueError(f"length is {length}; it is a number above 0")


def episode_of(lesson: Lesson) -> np.ndarray:
    """Index of each token's episode."""
    offsets = lesson.arrays["episode_offsets"]
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def used(lesson: Lesson) -> np.ndarray:
    """Action tokens of scorable episodes."""
    scorable_B = np.ones(len(lesson.arrays["episode_offsets"]) - 1, bool)
    scorable_B[list(lesson.meta.get("unscorable", []))] = False
    return lesson.arrays["is_action"] & scorable_B[episode_of(lesson)]


def aggregate(
    lesson: Lesson, used_T: np.ndarray, aggregation: str, length: float | None
) -> np.ndarray:
    """weights_T in float64 over the used tokens; the equations above."""
    episode_T = episode_of(lesson)
    counts_B = np.bincount(episode_T, used_T, len(lesson.arrays["episode_offsets"]) - 1)
    episodes = max(int((counts_B > 0).sum()), 1)
    if aggregation == "token_mean":
        weight_B = np.full(len(counts_B), 1.0 / max(counts_B.sum(), 1.0))
    elif aggregation == "sequence_mean":
        weight_B = 1.0 / (episodes * np.maximum(counts_B, 1.0))
    else:
        weight_B = np.full(len(counts_B), 1.0 / (episodes * (length or 1.0)))
    return np.where(used_T, weight_B[episode_T], 0.0)
