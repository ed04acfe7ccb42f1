import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.credit.gae import GAE
from harness.credit.vtrace import VTrace

MASK = [1, 1, 0, 0, 1, 1]
V = [0.1, 0.2, 0.9, 0.8, 0.3, 0.4]
ACTIONS = [0, 1, 4, 5]


def test_on_policy_the_values_are_lambda_returns(batch):
    inputs = batch([1.0], 1, masks=[MASK], values=V)
    G = VTrace(gamma=0.9, lam=0.7)(*inputs)
    lambda_returns = GAE(gamma=0.9, lam=0.7, normalize=False)(*inputs).arrays["returns"]
    assert_allclose(G.arrays["returns"], lambda_returns, rtol=1e-6)


def test_off_policy_it_is_the_recurrence_of_the_paper(batch):
    target = np.array([-0.5, -2.0, 0, 0, -1.1, -0.2])
    G = VTrace(gamma=0.9, lam=0.7, rho_bar=1.5, c_bar=1.0)(
        *batch([1.0], 1, masks=[MASK], values=V, target_logprobs=target)
    )
    w = np.exp(np.float32(target)[ACTIONS].astype(float) + 1)
    rho, c = np.minimum(w, 1.5), 0.7 * np.minimum(w, 1.0)
    value, r = np.array(np.float32(V)[ACTIONS], float), [0, 0, 0, 1.0]
    v, after, following = np.zeros(4), 0.0, 0.0
    advantages = np.zeros(4)
    for t in reversed(range(4)):
        delta = rho[t] * (r[t] + 0.9 * following - value[t])
        v[t] = value[t] + delta + 0.9 * c[t] * (after - following)
        advantages[t] = rho[t] * (r[t] + 0.9 * after - value[t])
        after, following = v[t], value[t]
    assert_allclose(G.arrays["returns"][ACTIONS], v, rtol=1e-6)
    assert_allclose(G.advantages_T[ACTIONS], advantages, rtol=1e-6)


def test_settings_and_inputs_that_cannot_be_are_refused(batch):
    with pytest.raises(ValueError, match="credit vtrace needs the values of a critic"):
        VTrace()(*batch([1.0], 1))
    with pytest.raises(ValueError, match=r"c_bar is 2.0 and rho_bar 1.0; 0 < c_bar <= rho_bar"):
        VTrace(c_bar=2.0)
    assert VTrace()(*batch([], 1, values=[])).advantages_T.shape == (0,)
