"""A limit of time on calls to code that is not ours."""

import time

import pytest

from harness.watchdog import TimeOut, check_seconds, within


def test_an_answer_in_time_is_the_answer():
    assert within(5.0, lambda a, *, b: a + b, 1, b=2) == 3
    assert within(None, lambda: None) is None
    assert within(5.0, lambda: None) is None


def test_an_exception_comes_through():
    with pytest.raises(KeyError, match="gone"):
        within(5.0, {}.__getitem__, "gone")


def test_no_answer_in_time_is_an_exception():
    began = time.monotonic()
    with pytest.raises(TimeOut, match=r"no answer within 0\.05 s"):
        within(0.05, time.sleep, 3)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_limit_is_a_time(seconds):
    with pytest.raises(ValueError, match="a number of seconds above 0, or null"):
        check_seconds("rollout.timeout", seconds)
