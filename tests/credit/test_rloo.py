import pytest
from numpy.testing import assert_allclose

from harness.credit.rloo import RLOO

T = 1 / 3


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([1, 0, 0, 1], [2 * T, -2 * T, -2 * T, 2 * T]), ([1, 0, 0, 0], [1, -T, -T, -T])],
)
def test_the_numbers_of_the_peers(episode_credit, rewards, expected):
    assert_allclose(episode_credit(RLOO(), rewards, 4), expected, rtol=1e-7)


def test_the_baseline_of_an_attempt_does_not_depend_on_it(episode_credit):
    for own in (0.0, 7.0):
        assert_allclose(own - episode_credit(RLOO(), [own, 1, 2], 3)[0], 1.5)


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="credit rloo compares the attempts at a problem"):
        RLOO().check(1)
