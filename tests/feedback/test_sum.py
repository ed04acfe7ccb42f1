from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from harness.feedback.overlong import Overlong
from harness.feedback.sum import Sum
from harness.feedback.verified import Verified
from harness.forms import Scores
from harness.identity import settings


@dataclass(frozen=True)
class Fixed:
    rewards: tuple[float, ...]

    def __call__(self, X, Z, seed):
        return Scores({"components": ["fixed"]}, {"rewards": np.array(self.rewards)})


@dataclass(frozen=True)
class Noise:
    def __call__(self, X, Z, seed):
        return Scores({"components": ["noise"]}, {"rewards": np.array([float(seed.key)])})


def test_rewards_are_added_by_weight_and_kept_by_name(inputs):
    both = Sum(
        {"verified": Verified(), "overlong": Overlong(4, 4)}, {"verified": 2.0, "overlong": 0.5}
    )
    F = both(*inputs([[0.25, 0.5], [1.0]]))
    assert F.rewards_B.tolist() == [1.5 - 0.5, 2.0 - 0.25]
    assert F.meta["components"] == ["overlong", "verified"]
    assert F.arrays["components"].tolist() == [[-1, 0.75], [-0.5, 1]]
    assert F.arrays["turn_rewards"].tolist() == [0.5, 1, 2]


def test_an_episode_that_one_cannot_score_is_unscorable(inputs):
    nan = float("nan")
    given = inputs([[1.0], [1.0]])
    F = Sum({"a": Verified(), "b": Fixed((nan, 1.0))})(*given)
    assert_array_equal(F.rewards_B, [nan, 2.0])
    F = Sum({"a": Verified(), "b": Fixed((nan, 1.0))}, {"b": 0.0})(*given)
    assert F.rewards_B.tolist() == [1.0, 1.0]


def test_adding_a_component_changes_no_others_luck(inputs):
    given = inputs([[1.0]])
    alone, both = Sum({"n": Noise()})(*given), Sum({"a": Noise(), "n": Noise()})(*given)
    assert alone.arrays["components"][0, 0] == both.arrays["components"][0, 1]
    assert both.arrays["components"][0, 0] != both.arrays["components"][0, 1]


def test_its_settings_name_its_components():
    assert settings(Sum({"v": Verified()}))["settings"]["components"] == {
        "v": {"map": "feedback.verified@1", "settings": {}}
    }


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="components is empty"):
        Sum({})
    with pytest.raises(ValueError, match="weights names 'b', but the components are a"):
        Sum({"a": Verified()}, {"b": 1.0})
    with pytest.raises(ValueError, match=r"weights.a is inf; it is a finite number"):
        Sum({"a": Verified()}, {"a": float("inf")})
