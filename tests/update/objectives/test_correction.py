import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.update.objectives.correction import check_correction, correct

DELTA = np.array([0.2, 1.0, -3.0])


def corrected(lesson, kind, low=0.0, high=2.0, delta=DELTA):
    G = lesson([[1] * len(delta)])
    return correct(G, G.arrays["logprobs"] + delta, kind, low, high)


def test_truncation_caps_the_ratio(lesson):
    assert_allclose(corrected(lesson, "truncate"), [1.2214, 2, 0.0498], atol=2e-5)


def test_a_mask_drops_what_is_outside(lesson):
    assert_allclose(corrected(lesson, "mask", low=0.5), [1.2214, 0, 0], atol=2e-5)


def test_a_sequence_is_judged_by_its_geometric_mean(lesson):
    # mean −0.6, geometric mean .5488
    kept = corrected(lesson, "sequence_mask", low=0.5488)
    assert_allclose(kept, np.exp(DELTA), rtol=1e-6)
    assert not corrected(lesson, "sequence_mask", low=0.5489).any()


def test_equal_engines_are_not_corrected(lesson):
    for kind in ("none", "truncate", "mask", "sequence_mask"):
        assert (corrected(lesson, kind, 1.0, 1.0, np.zeros(3)) == 1).all()


def test_without_correction_nothing_is_weighted(lesson):
    assert (corrected(lesson, "none") == 1).all()


def test_tokens_that_are_no_actions_neither_count_nor_weigh(lesson):
    G = lesson([[0, 1], [1, 0, 1]])
    logp = G.arrays["logprobs"] + np.array([9, 0, 0, 9, 0])
    assert (correct(G, logp, "sequence_mask", 0.9, 1.1) == 1).all()


def test_an_exploding_ratio_stays_finite(lesson):
    assert np.isfinite(corrected(lesson, "mask", high=1e9, delta=np.array([800.0]))).all()


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"correction is 'tis'; it is one of none, truncate"):
        check_correction("tis", 0, 2)
    with pytest.raises(ValueError, match=r"bounds are 0 and 0.9; 1, the ratio of equal engines"):
        check_correction("truncate", 0, 0.9)
