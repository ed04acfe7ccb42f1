from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from harness.forms import Scores
from harness.pages.chart import chart, ticks
from harness.pages.reading import read

from .conftest import made


@pytest.mark.parametrize("rewards", [np.zeros(6), np.full(6, np.nan), np.arange(6) - 3.0])
def test_a_picture_is_xml_without_styles(rewards):
    record = replace(made(2, 3), F=Scores({}, {"rewards": rewards}))
    picture = ElementTree.fromstring(chart(read(record)))
    assert all("style" not in e.attrib and "id" not in e.attrib for e in picture.iter())


def test_a_picture_of_many_episodes_stays_small():
    record = made(2000, 2, 1, 1)
    record = replace(record, F=Scores({}, {"rewards": np.random.default_rng(0).random(4000)}))
    assert len(chart(read(record))) < 200_000


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 2), (0, 1e-9), (0, 123456)])
def test_ticks_are_few_and_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 6
    assert low - 1e-9 <= found[0] <= found[-1] <= high * (1 + 1e-9)
