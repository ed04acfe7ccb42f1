"""Philox4x32-10 in numpy: a counter-based generator, a pure function of (key, counter).

    (x0, x1, x2, x3)_{i+1} = (hi(M1·x2) ⊕ x1 ⊕ k0, lo(M1·x2), hi(M0·x0) ⊕ x3 ⊕ k1, lo(M0·x0))

ten times, the key bumped by the Weyl constants W0, W1 between rounds.
Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011), section 4.3.
"""

from __future__ import annotations

import numpy as np

M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = 0x9E3779B9, 0xBB67AE85
MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox4x32(counter: np.ndarray, key: tuple[int, int], rounds: int = 10) -> np.ndarray:
    """Four 32-bit words for each counter.

    counter: [..., 4] integers below 2^32; key: two such integers. Returns uint32 [..., 4].
    """
    x0, x1, x2, x3 = (counter[..., i].astype(np.uint64) & MASK for i in range(4))
    k0, k1 = key
    for _ in range(rounds):
        p0, p1 = M0 * x0, M1 * x2
        x0, x1, x2, x3 = (
            (p1 >> SHIFT) ^ x1 ^ np.uint64(k0), p1 & MASK,
            (p0 >> SHIFT) ^ x3 ^ np.uint64(k1), p0 & MASK,
        )  # fmt: skip
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def words(key: int, count: int, *, stream: int = 0) -> np.ndarray:
    """`count` 32-bit words of a 64-bit key: counters (i, 0, stream, 0)."""
    blocks = -(-count // 4)
    counter = np.zeros((blocks, 4), np.uint64)
    counter[:, 0] = np.arange(blocks)
    counter[:, 2] = stream
    return philox4x32(counter, (key & 0xFFFFFFFF, key >> 32)).reshape(-1)[:count]


def uniforms(key: int, count: int, *, stream: int = 0) -> np.ndarray:
    """`count` float64 in (0, 1), on the midpoints of a grid of 2^-52: never 0, never 1."""
    pairs = words(key, 2 * count, stream=stream).astype(np.uint64).reshape(-1, 2)
    # 52 bits: of 53, the largest midpoint would round to 1
    mantissa = (pairs[:, 0] << np.uint64(20)) ^ (pairs[:, 1] >> np.uint64(12))
    return (mantissa.astype(np.float64) + 0.5) * 2.0**-52


def integers(key: int, below: np.ndarray | list[int], *, stream: int = 0) -> np.ndarray:
    """One integer in [0, below_i) for each i, by the high word of a 64-bit product.

    Bounds are 1 to 2^32. Bias at most below_i / 2^64: nothing that a test of any feasible size
    could see.
    """
    bounds = np.asarray(below, dtype=np.uint64)
    assert np.all((bounds > 0) & (bounds <= np.uint64(2**32))), "bounds are 1 to 2^32"
    pairs = words(key, 2 * bounds.size, stream=stream).astype(np.uint64).reshape(-1, 2)
    high, low = bounds * pairs[:, 0], bounds * pairs[:, 1]
    return ((high + (low >> SHIFT)) >> SHIFT).astype(np.int64)


def permutation(key: int, size: int, *, stream: int = 0) -> np.ndarray:
    """A uniform permutation of range(size): argsort of 64-bit words, ties by index.

    The chance of a tie is about size²/2^65.
    """
    pairs = words(key, 2 * size, stream=stream).astype(np.uint64).reshape(-1, 2)
    return np.argsort((pairs[:, 0] << SHIFT) | pairs[:, 1], kind="stable")
