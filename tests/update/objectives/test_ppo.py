import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.update.objectives.ppo import PPO


def test_the_numbers_of_the_peers(lesson):
    ratios, advantages = [0.5, 0.5, 1.5, 1.5, 5], [1, -1, 1, -1, -1]
    for k, expected in enumerate([-0.5, 0.8, -1.2, 1.5, 3.0]):
        G = lesson([[1]], [advantages[k]])
        dlogp, loss = PPO(dual_clip=3.0).coefficients(G, np.log([ratios[k]]) - 1)
        assert_allclose(loss, expected, rtol=1e-14)
        moves = [True, False, False, True, False][k]
        assert_allclose(dlogp[0], expected if moves else 0, rtol=1e-7)


def test_the_kernel_has_the_same_settings():
    kernel = PPO(clip_high=0.28, dual_clip=3.0, kl="k3", kl_coef=0.1, entropy_coef=0.01).kernel()
    assert (kernel.kind, kernel.clip_low, kernel.clip_high) == ("ppo", 0.2, 0.28)
    assert (kernel.dual_clip, kernel.kl_kind) == (3.0, "k3")
    assert (kernel.kl_coef, kernel.entropy_coef) == (0.1, 0.01)


def test_clip_bounds_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"clip_low is 1.5 and clip_high 0.2; ratios stay within"):
        PPO(clip_low=1.5)
    with pytest.raises(ValueError, match=r"dual_clip is 1.1; it exceeds 1"):
        PPO(dual_clip=1.1)
