"""Which episodes a page shows, where there are more than fit.

    A = min(G, max(4, limit // P)) attempts of each of min(P, limit // A) problems

Problems are spread evenly over the ranks of their mean rewards, attempts over the ranks of their
rewards: the worst, the best and the first are among them.
"""

from __future__ import annotations

import numpy as np

FEWEST = 4
"""Attempts of a problem that are shown before problems are left out."""


def choose(rewards_B: np.ndarray, attempts: int, limit: int) -> list[list[int]]:
    """Episodes to show by problem, both in their own order; at most `limit`, itself at least 1."""
    rewards_PG = np.nan_to_num(rewards_B, nan=-np.inf).reshape(-1, attempts)
    problems = len(rewards_PG)
    if problems * attempts <= limit:
        return [[p * attempts + g for g in range(attempts)] for p in range(problems)]
    each = min(attempts, limit, max(FEWEST, limit // problems))
    finite_PG = np.where(np.isneginf(rewards_PG), 0.0, rewards_PG)
    shown = spread(finite_PG.mean(axis=1), min(problems, limit // each))
    return [[p * attempts + g for g in spread(rewards_PG[p], each)] for p in shown]


def spread(values: np.ndarray, count: int) -> list[int]:
    """`count` indices, evenly over the ranks of the values, in their own order.

    Of one it is the first index, of three or more the first is among them.
    """
    if count == 1:
        return [0]
    order = np.argsort(values, kind="stable")
    ranks = np.linspace(0, len(values) - 1, count).round().astype(int)
    first = int(np.flatnonzero(order == 0)[0])
    if count > 2 and first not in ranks:
        # the nearest of those between the worst and the best gives way
        ranks[1 + int(np.argmin(np.abs(ranks[1:-1] - first)))] = first
    return sorted(order[ranks].tolist())
