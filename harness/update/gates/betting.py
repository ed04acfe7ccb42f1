"""Is a mean above a number? A test by betting, exact for every sample size.

    K_n(m) = 1/J · Σ_j Π_{i ≤ n} (1 + λ_j (d_i − m)),     λ_j = 2^-j, j = 1 … J = 10

With d_i in [-1, 1] and E[d_i | d_1 … d_{i-1}] ≤ m it is a non-negative supermartingale that begins
at 1 (what a gambler owns who bets the fractions λ_j on d_i > m, at odds that are fair or worse), so

    P(sup_n K_n(m) ≥ 1/α) ≤ α            (Ville)

whatever else the law of the d_i is: asymmetric, discrete, mostly zero, and however one stops. A
sign-flip test would need it symmetric about m, and a bootstrap is exact only as n grows. The
mixture needs no guess at the variance; against the best λ_j it loses a factor J at most, that is
log(J) of the log K_n that decides.

Source: Waudby-Smith and Ramdas, arXiv 2010.09686 (capital processes, and mixtures of bets).
"""

from __future__ import annotations

import math

import numpy as np

BETS = 2.0 ** -np.arange(1, 11)
"""At most 1/2: no d_i − m in (-2, 2) can lose all."""


def log_capital(d_N: np.ndarray, m: float) -> float:
    """max over n ≤ N of log K_n(m), K_0 = 1 included, for d in [-1, 1] and m in (-1, 1)."""
    if not len(d_N):
        return 0.0
    log_NJ = np.cumsum(np.log1p(BETS * (d_N[:, None] - m)), axis=0)
    most_N = log_NJ.max(1)
    log_N = most_N + np.log(np.exp(log_NJ - most_N[:, None]).mean(1))
    return max(float(log_N.max()), 0.0)


def p_value(d_N: np.ndarray, m: float) -> float:
    """Of the hypothesis that the mean is at most m: valid at any stopping time."""
    return math.exp(-log_capital(d_N, m))


def lower_bound(d_N: np.ndarray, alpha: float) -> float:
    """The largest m that is refused: the mean is above it with confidence 1 − α. −1: none is.

    To 2^-40, from below.
    """
    low, high = -1.0, 1.0
    for _ in range(41):
        middle = (low + high) / 2
        refused = log_capital(d_N, middle) >= -math.log(alpha)
        low, high = (middle, high) if refused else (low, middle)
    return low
