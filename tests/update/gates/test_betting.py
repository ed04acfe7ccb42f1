import numpy as np
import pytest

from harness.update.gates.betting import log_capital, lower_bound, p_value

LAWS = {
    "signs": ([-1.0, 1.0], [0.5, 0.5]),
    "rare gains": ([-0.2, 0.6], [0.75, 0.25]),
    "rare losses": ([0.2, -0.6], [0.75, 0.25]),
    "mostly ties": ([0.0, -1.0, 1.0], [0.9, 0.05, 0.05]),
}
"""Values and chances of laws with mean 0."""


def test_capital_is_the_mean_of_the_bettors():
    d, m = np.array([0.5, -0.25, 1.0]), 0.125
    bettors = [np.cumprod(1 + 2.0**-j * (d - m)) for j in range(1, 11)]
    assert log_capital(d, m) == pytest.approx(np.log(np.mean(bettors, 0).max()))
    assert log_capital(np.array([-1.0]), 0.0) == 0
    assert p_value(np.empty(0), 0.0) == 1


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_a_mean_of_zero_is_refused_at_most_at_the_level(law, alpha):
    rng, runs = np.random.default_rng(7), 3000
    values, chances = LAWS[law]
    drawn = rng.choice(values, p=chances, size=(runs, 200))
    # at any time: the most that was reached counts
    refused = sum(p_value(d, 0.0) <= alpha for d in drawn)
    assert refused <= runs * alpha + 3 * np.sqrt(runs * alpha)
    assert refused > 0
    # a rule without a level is found out by the same bound
    assert (drawn.mean(1) > 0).sum() > runs * alpha + 3 * np.sqrt(runs * alpha)


@pytest.mark.parametrize(("mean", "scale"), [(0.1, 0.3), (0.5, 0.5), (-0.2, 0.05)])
def test_the_bound_is_below_the_mean_and_not_far(mean, scale):
    rng = np.random.default_rng(3)
    found = [
        lower_bound(np.clip(rng.normal(mean, scale, 400), -1, 1), 0.05) for _ in range(50)
    ]  # fmt: skip
    assert sum(bound > mean for bound in found) <= 8
    # bets of at most 1/2 cost log(J/α)/(N/2) where the spread is small
    assert np.median(found) > mean - max(4.5 * scale / np.sqrt(400), 2 * np.log(10 / 0.05) / 400)


def test_the_bound_is_where_the_test_turns():
    d = np.random.default_rng(1).uniform(-0.5, 1.0, 100)
    bound = lower_bound(d, 0.1)
    assert p_value(d, bound - 1e-9) <= 0.1 < p_value(d, bound + 1e-9)
    assert lower_bound(np.full(3, -1.0), 0.05) == -1


def test_nothing_lost_is_nothing_gained():
    assert p_value(np.zeros(500), 0.0) == 1
    assert np.isfinite(log_capital(np.ones(5000), 0.0))
