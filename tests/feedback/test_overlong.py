import pytest
from numpy.testing import assert_allclose

from harness.feedback.overlong import Overlong


def test_the_numbers_of_the_peers(inputs):
    given = inputs([[0.0]] * 4, lengths=[80, 90, 100, 110])
    assert Overlong(100, 20)(*given).rewards_B.tolist() == [0, -0.5, -1, -1.5]
    assert Overlong(100, 20, cap=1)(*given).rewards_B.tolist() == [0, -0.5, -1, -1]


def test_all_turns_count_and_observations_do_not(inputs):
    # three turns of one observed and two sampled tokens
    F = Overlong(max_tokens=8, buffer=4)(*inputs([[0, 0, 0], [0]]))
    assert_allclose(F.rewards_B, [-0.5, 0])


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="buffer is 20 and max_tokens 10; 0 < buffer <= max_tok"):
        Overlong(10, 20)
    with pytest.raises(ValueError, match="cap is 0; it is above 0, or null"):
        Overlong(10, 5, cap=0)
