import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.update.objectives.weights import aggregate, check_aggregation, used

LOSSES = np.array([0, 1, 2, 3, 0, 0, 4, 0])
MASKS = [[0, 1, 1, 1], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("aggregation", "length", "expected"),
    [
        ("token_mean", None, 2.5),
        ("sequence_mean", None, 3.0),
        ("sequence_sum", None, 5.0),
        ("sequence_sum_norm", 3, 5 / 3),
    ],
)
def test_the_numbers_of_the_peers(lesson, aggregation, length, expected):
    G = lesson(MASKS)
    w_T = aggregate(G, used(G), aggregation, length)
    assert_allclose(w_T @ LOSSES, expected, rtol=1e-15)
    assert not w_T[~G.arrays["is_action"]].any()


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum"])
def test_unscorable_and_empty_episodes_are_in_no_denominator(lesson, aggregation):
    alone = lesson(MASKS)
    more = lesson([[1, 1], *MASKS, [0, 0]], unscorable=[0])
    w_T = aggregate(more, used(more), aggregation, None)
    assert not w_T[:2].any()
    assert (w_T[2:-2] == aggregate(alone, used(alone), aggregation, None)).all()


def test_the_order_of_episodes_changes_no_weight(lesson):
    G, H = lesson(MASKS), lesson(MASKS[::-1])
    w, v = (aggregate(L, used(L), "sequence_mean", None) for L in (G, H))
    assert (w[:4] == v[4:]).all()
    assert (w[4:] == v[:4]).all()


@pytest.mark.parametrize("masks", [[], [[0, 0], [0]]])
def test_no_used_token_is_no_weight(lesson, masks):
    G = lesson(masks)
    assert not aggregate(G, used(G), "sequence_mean", None).any()


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(
        ValueError, match=r"aggregation is 'mean'; it is one of token_mean, sequence"
    ):
        check_aggregation("mean", None)
    with pytest.raises(ValueError, match=r"length is None with aggregation sequence_sum_norm"):
        check_aggregation("sequence_sum_norm", None)
    with pytest.raises(ValueError, match=r"length is 5 with aggregation token_mean"):
        check_aggregation("token_mean", 5)
    with pytest.raises(ValueError, match=r"length is 0; it is a number above 0"):
        check_aggregation("sequence_sum_norm", 0)
