"""Statistics of labelled groups in float64, centred first.

A value of NaN is unscored: it is outside of every statistic. Values are taken relative to the
largest of their group before anything is summed, so that equal values give exact zeros and nearly
equal ones keep their digits; variances are sums of squares about the mean, never E[x²] − E[x]².
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Centred:
    """Values about the mean of their group; every array has one entry a value."""

    scored: Array
    """Whether the value is a number."""
    centred: Array
    """The value minus its group's mean; 0 where unscored."""
    mean: Array
    """Its group's mean; 0 for a group without a scored value."""
    count: Array
    """Scored values of its group."""
    square: Array
    """Σ centred² over its group."""
    constant: Array
    """Whether its group's scored values are all equal, or fewer than two."""

    @property
    def std(self) -> Array:
        """Standard deviation with n − 1 in the denominator; 0 below two scored values."""
        return np.sqrt(self.square / np.maximum(self.count - 1, 1))

    @property
    def leave_one_out(self) -> Array:
        """The value minus the mean of the others: n/(n−1)·centred; 0 where there are no others."""
        others = np.maximum(self.count - 1, 1)
        return np.where(self.count > 1, self.centred * self.count / others, 0.0)


def centre(values: Array, labels: Array) -> Centred:
    """Values with their groups' statistics; labels are integers from 0."""
    values = np.asarray(values, np.float64)
    scored = ~np.isnan(values)
    groups = int(labels.max()) + 1 if labels.size else 0
    origin = np.full(groups, -np.inf)
    np.maximum.at(origin, labels[scored], values[scored])
    count = np.bincount(labels, scored, groups)
    shifted = np.where(scored, values - origin[labels], 0.0)
    offset = np.bincount(labels, shifted, groups) / np.maximum(count, 1)
    centred = np.where(scored, shifted - offset[labels], 0.0)
    square = np.bincount(labels, centred**2, groups)
    varied = np.bincount(labels, shifted != 0, groups) > 0
    mean = np.where(count > 0, np.where(count > 0, origin, 0.0) + offset, 0.0)
    return Centred(
        scored, centred, mean[labels], count[labels], square[labels], ~varied[labels]
    )  # fmt: skip


def labels_of(keys: Iterable[Hashable]) -> Array:
    """Integers from 0, equal where keys are, in the order in which keys first appear."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def std_of_others(values: Array, attempts: int) -> Array:
    """Per value, the standard deviation (n−1) of the other scored values of its group of `attempts`
    neighbours; 0 below two others."""
    rows_PG = np.asarray(values, np.float64).reshape(-1, attempts)
    others_PGG = np.repeat(rows_PG[:, None, :], attempts, axis=1)
    others_PGG[:, np.arange(attempts), np.arange(attempts)] = np.nan
    labels = np.repeat(np.arange(rows_PG.size), attempts)
    return centre(others_PGG.reshape(-1), labels).std.reshape(-1, attempts)[:, 0].reshape(-1)


def whiten(values: Array, eps: float = 1e-8) -> Array:
    """(x − mean)/√(var + eps), var with n − 1 in the denominator; equal or single values give 0."""
    about = centre(values, np.zeros(len(values), np.int64))
    return about.centred / np.sqrt(about.std**2 + eps)
