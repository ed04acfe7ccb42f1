from dataclasses import replace

import numpy as np

from harness.forms import Lesson, Stop
from harness.pages.reading import STOPS, read

from .conftest import made


def test_numbers_by_episode_are_those_of_their_tokens():
    record = made(2, 3, 2, 2)
    reading, Z = read(record), record.Z
    for b in range(6):
        part = slice(Z.episode_offsets[b], Z.episode_offsets[b + 1])
        action = Z.is_action_T[part]
        assert reading.sampled_B[b] == action.sum() == 4
        assert np.isclose(reading.logprob_B[b], Z.logprobs_T[part][action].mean())
        assert np.isclose(reading.advantage_B[b], record.G.advantages_T[part][action].mean())
    assert sum(count for _, count in reading.stops()) == 6


def test_credit_that_is_packed_otherwise_is_not_drawn():
    record = replace(made(), G=Lesson({}, {"advantages": np.ones(3, np.float32)}))
    reading = read(record)
    assert not reading.credit_T.any()
    assert reading.scale == 1.0


def test_every_stop_has_its_words():
    assert set(STOPS) == set(Stop)
