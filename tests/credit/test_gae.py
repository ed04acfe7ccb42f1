import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.credit.gae import GAE

MASK = [1, 1, 0, 0, 1, 1]
V = [0.1, 0.2, 0.9, 0.8, 0.3, 0.4]
ACTIONS = [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        ("skip", [0.25, 0.30, 0.4, 0.6]),
        ("zero", [0.0625, -0.075, 0.4, 0.6]),
        ("none", [0.3875, 0.575, 0.4, 0.6]),
    ],
)
def test_the_numbers_of_the_peers(batch, observations, expected):
    credit = GAE(lam=0.5, observations=observations, normalize=False)
    G = credit(*batch([1.0], 1, masks=[MASK], values=V))
    assert_allclose(G.advantages_T[ACTIONS], expected, rtol=1e-6)
    assert_allclose(G.arrays["returns"][ACTIONS], np.add(expected, np.take(V, ACTIONS)), rtol=1e-6)
    assert not G.advantages_T[[2, 3]].any()
    assert not G.arrays["values"][[2, 3]].any()


@pytest.mark.parametrize("observations", ["skip", "zero", "none"])
def test_two_episodes_packed_are_two_apart(batch, observations):
    credit = GAE(gamma=0.9, lam=0.8, observations=observations, normalize=False)
    both = credit(*batch([1.0, -2.0], 1, masks=[MASK, MASK[1:]], values=V + V[1:]))
    first = credit(*batch([1.0], 1, masks=[MASK], values=V))
    second = credit(*batch([-2.0], 1, masks=[MASK[1:]], values=V[1:]))
    apart = np.concatenate([first.advantages_T, second.advantages_T])
    assert (both.advantages_T == apart).all()


def test_with_lambda_1_it_is_the_return_about_the_value(batch):
    G = GAE(normalize=False)(*batch([2.0], 1, masks=[MASK], values=V, turn_rewards=[0.5, 1.5]))
    assert_allclose(G.advantages_T[ACTIONS], [1.9, 1.8, 1.2, 1.1], rtol=1e-6)


def test_normalised_advantages_are_white_and_returns_stay_raw(batch):
    inputs = batch([1.0], 1, masks=[MASK], values=V)
    white, raw = GAE()(*inputs), GAE(normalize=False)(*inputs)
    own = white.advantages_T[ACTIONS]
    assert_allclose([own.mean(), own.var(ddof=1)], [0, 1], atol=1e-6)
    assert (white.arrays["returns"] == raw.arrays["returns"]).all()


def test_unscorable_and_empty_inputs_are_fine(batch):
    G = GAE()(*batch([float("nan"), 1.0], 1, masks=[MASK, [0]], values=[*V, 0.0]))
    assert not G.advantages_T.any()
    assert GAE()(*batch([], 1, values=[])).advantages_T.shape == (0,)


def test_settings_and_inputs_that_cannot_be_are_refused(batch):
    with pytest.raises(
        ValueError, match="credit gae needs the values of a critic, but the rollout"
    ):
        GAE()(*batch([1.0], 1))
    with pytest.raises(ValueError, match="observations is 'mask'; it is one of skip, zero, none"):
        GAE(observations="mask")
