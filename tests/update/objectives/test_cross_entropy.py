import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.update.objectives.cross_entropy import CrossEntropy

LOGP = np.array([0, -1, -2, -3, -4, -5])
MASKS = [[0, 1, 1], [1, 1, 1]]


def test_only_what_is_selected_is_imitated_and_counted(lesson):
    G = lesson(MASKS, [0, 1, 1, 0, 0, 0], use="supervised")
    dlogp, loss = CrossEntropy().coefficients(G, LOGP)
    assert_allclose(dlogp, [0, -0.5, -0.5, 0, 0, 0])
    assert_allclose(loss, 1.5)
    assert CrossEntropy().row_mask(G).tolist() == [False, True, True, False, False, False]
    assert CrossEntropy().kernel().kind == "ce"


def test_positive_weights_weigh(lesson):
    G = lesson(MASKS, [0, 1, 1, 3, 3, 3], use="supervised")
    _, loss = CrossEntropy(aggregation="sequence_mean").coefficients(G, LOGP)
    assert_allclose(loss, (1.5 + 3 * 4) / 2, rtol=1e-6)


def test_nothing_selected_is_no_loss(lesson):
    G = lesson(MASKS, [0] * 6, use="supervised")
    dlogp, loss = CrossEntropy().coefficients(G, LOGP)
    assert (loss, dlogp.any()) == (0, False)


def test_credit_for_something_else_is_refused(lesson):
    with pytest.raises(ValueError, match="credit is for 'policy', but this objective learns from"):
        CrossEntropy().weights(lesson(MASKS))
    with pytest.raises(ValueError, match=r"weighs a token with -1.0; weights are not negative"):
        CrossEntropy().weights(lesson(MASKS, [-1] * 6, use="supervised"))
