import csv
import io
from dataclasses import replace

import numpy as np

from harness.forms import Scores
from harness.pages.reading import read
from harness.pages.table import COLUMNS, table

from .conftest import HOSTILE, made


def test_a_row_an_episode():
    record = made(2, 3, text=HOSTILE[0])
    record = replace(record, F=Scores({}, {"rewards": np.array([0, 0.1, np.nan, 1, 1, 1.0])}))
    rows = list(csv.DictReader(io.StringIO(table(read(record)))))
    assert tuple(rows[0]) == COLUMNS
    assert [(r["problem"], r["attempt"]) for r in rows][:4] == [
        ("0", "0"), ("0", "1"), ("0", "2"), ("1", "0"),
    ]  # fmt: skip
    assert [r["reward"] for r in rows] == ["0.0", "0.1", "nan", "1.0", "1.0", "1.0"]
    assert {r["sampled_tokens"] for r in rows} == {"4"}
