import math

import pytest

from harness.update.schedule import Schedule


def test_a_constant_rate_is_constant():
    assert [Schedule().at(k, 3e-5) for k in (0, 1, 10**6)] == [3e-5] * 3


def test_warm_up_reaches_the_rate_at_its_last_step():
    rates = [Schedule(warmup=4).at(k, 1.0) for k in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_falls_to_its_final_share_and_stays():
    schedule = Schedule(shape="linear", warmup=2, horizon=6, final=0.2)
    rates = [schedule.at(k, 10.0) for k in range(8)]
    assert rates == pytest.approx([5.0, 10.0, 8.0, 6.0, 4.0, 2.0, 2.0, 2.0])


def test_cosine_is_halfway_in_the_middle():
    schedule = Schedule(shape="cosine", horizon=8, final=0.5)
    assert schedule.at(3, 1.0) == pytest.approx(0.75)
    assert schedule.at(7, 1.0) == pytest.approx(0.5)
    assert schedule.at(1, 1.0) == pytest.approx(0.5 + 0.25 * (1 + math.cos(math.pi / 4)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": "step"}, r"schedule.shape is 'step'; it is one of constant, linear, cosine"),
        ({"warmup": -1}, r"schedule.warmup is -1 and final 0.0"),
        ({"final": 1.5}, r"schedule.warmup is 0 and final 1.5"),
        ({"shape": "linear"}, r"schedule.horizon is None with shape linear"),
        ({"shape": "cosine", "warmup": 5, "horizon": 5}, r"a number of steps above warmup 5"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**settings)
