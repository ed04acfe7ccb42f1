import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.update.objectives.cispo import CISPO

RATIO = np.array([0.1, 0.9, 1.5, 9.0])


def test_every_token_keeps_a_gradient_with_a_clipped_weight(lesson):
    A = np.array([1.0, -1, 2, -3])
    G = lesson([[1] * 4], A)
    logp = np.log(RATIO) - 1
    dlogp, loss = CISPO(clip_low=0.2, clip_high=0.28).coefficients(G, logp)
    weight = np.array([0.8, 0.9, 1.28, 1.28])
    assert_allclose(dlogp, -weight * A / 4, rtol=1e-6)
    assert_allclose(loss, (-weight * A * logp).mean(), rtol=1e-6)


def test_the_default_has_no_lower_bound_and_5_above(lesson):
    dlogp, _ = CISPO().coefficients(lesson([[1] * 4]), np.log(RATIO) - 1)
    assert_allclose(dlogp, -np.array([0.1, 0.9, 1.5, 5]) / 4, rtol=1e-6)
    kernel = CISPO().kernel()
    assert (kernel.kind, kernel.clip_low, kernel.clip_high) == ("cispo", 1.0, 4.0)


def test_an_upper_bound_below_1_is_refused():
    with pytest.raises(ValueError, match=r"clip_high is -0.8, so no weight exceeds 0.19"):
        CISPO(clip_high=-0.8)
    with pytest.raises(ValueError, match=r"clip_low is 1.5; it lies between 0 and 1"):
        CISPO(clip_low=1.5)
