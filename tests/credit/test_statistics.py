import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from harness.credit.statistics import centre, labels_of, std_of_others, whiten

values = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(values, st.data())
def test_groups_have_numpys_mean_and_deviation(xs, data):
    x = np.array(xs)
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(x), max_size=len(x))))
    about = centre(x, labels)
    for label in set(labels.tolist()):
        own = x[labels == label]
        assert_allclose(about.mean[labels == label], own.mean(), rtol=1e-12, atol=1e-12)
        expected = own.std(ddof=1) if len(own) > 1 else 0.0
        assert_allclose(about.std[labels == label], expected, rtol=1e-9, atol=1e-9)
        assert (about.constant[labels == label] == (len(set(own.tolist())) == 1)).all()


def test_unscored_values_are_outside_of_everything():
    about = centre(np.array([1.0, np.nan, 3.0, np.nan]), np.array([0, 0, 0, 1]))
    assert about.mean.tolist() == [2, 2, 2, 0]
    assert about.count.tolist() == [2, 2, 2, 0]
    assert about.centred.tolist() == [-1, 0, 1, 0]
    assert about.leave_one_out.tolist() == [-2, 0, 2, 0]
    assert about.constant.tolist() == [False, False, False, True]


def test_the_others_deviation_is_theirs():
    x = np.array([1.0, 0, 0, 0, 5, 6, 7, np.nan])
    got = std_of_others(x, 4)
    assert_allclose(got[:4], [0, 3**-0.5, 3**-0.5, 3**-0.5], rtol=1e-15)
    assert_allclose(got[4:], [0.5**0.5, 2**0.5, 0.5**0.5, 1], rtol=1e-15)


def test_whitening_gives_mean_0_and_variance_1():
    white = whiten(np.array([1.0, 2, 3, 10]))
    assert_allclose([white.mean(), white.var(ddof=1)], [0, 1], atol=1e-8)
    assert whiten(np.full(5, 0.1)).tolist() == [0] * 5
    assert whiten(np.array([3.0])).tolist() == [0]
    assert whiten(np.array([])).tolist() == []


def test_labels_follow_equality():
    assert labels_of("abca").tolist() == [0, 1, 2, 0]
    assert labels_of([]).dtype == np.int64
