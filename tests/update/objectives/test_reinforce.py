import numpy as np
from numpy.testing import assert_allclose

from harness.update.objectives.ppo import PPO
from harness.update.objectives.reinforce import Reinforce

MASKS, A = [[0, 1, 1], [1, 1]], [0, 1, -2, 0.5, 0]
LOGP = np.array([0, -0.5, -2, -1, -3])


def test_the_loss_is_log_probability_weighted_by_credit(lesson):
    G = lesson(MASKS, A)
    dlogp, loss = Reinforce().coefficients(G, LOGP)
    assert_allclose(dlogp, np.array([0, -1, 2, -0.5, 0]) / 4)
    assert_allclose(loss, (0.5 - 4 + 0.5) / 4, rtol=1e-7)


def test_on_its_own_samples_it_has_the_gradient_of_ppo(lesson):
    G = lesson(MASKS, A)
    mine, _ = Reinforce().coefficients(G, G.arrays["logprobs"])
    theirs, _ = PPO().coefficients(G, G.arrays["logprobs"])
    assert (mine == theirs).all()


def test_a_correction_weighs_it(lesson):
    G = lesson(MASKS, A)
    objective = Reinforce(correction="truncate", correction_high=1.2)
    assert objective.scores_old
    w_T = objective.correction_weights(G, G.arrays["logprobs"] + [9, 0.1, 5, -1, 0])
    assert_allclose(w_T, [1, np.exp(0.1), 1.2, np.exp(-1), 1], rtol=1e-6)
    dlogp, _ = objective.coefficients(G, LOGP, correction_T=w_T)
    assert_allclose(dlogp, w_T * np.array([0, -1, 2, -0.5, 0]) / 4, rtol=1e-6)


def test_the_kernel_is_the_same_loss():
    assert Reinforce(entropy_coef=0.1).kernel().kind == "reinforce"
    assert Reinforce(entropy_coef=0.1).kernel().entropy_coef == 0.1
