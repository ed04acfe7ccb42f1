"""Uniform integers from a seed: exact integer arithmetic, the same on every machine."""

from __future__ import annotations

from harness.round import Seed


def below(seed: Seed, bound: int) -> int:
    """An integer in [0, bound): ⌊bound · u / 2^128⌋ with u the seed's 128 bits.

    Bias at most bound / 2^128: nothing that a test of any feasible size could see.
    """
    assert bound > 0, bound
    return (int(seed.hex, 16) * bound) >> 128


def rank_without(seed: Seed, bound: int, count: int) -> list[int]:
    """`count` distinct integers of [0, bound), uniformly ordered: a Fisher-Yates shuffle's head."""
    assert 0 <= count <= bound, (count, bound)
    moved: dict[int, int] = {}
    drawn = []
    for i in range(count):
        j = i + below(seed.fold("swap", i), bound - i)
        drawn.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return drawn
