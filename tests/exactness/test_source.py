"""Archived sources are unpacked into their folder and nowhere else."""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.exactness.source import unpack
from harness.fingerprint import Source
from harness.store import Store


@pytest.mark.parametrize("name", ["../evil.py", "/tmp/evil.py", "a/../../../evil.py"])
def test_a_path_that_leads_out_is_refused(tmp_path, name):
    store, below = Store(str(tmp_path / "cas")), tmp_path / "a" / "b"
    source = Source({}, {name: np.frombuffer(b"x = 1", np.uint8)})
    store.put(source)
    entry = SimpleNamespace(n=0, document=SimpleNamespace(sealed={"source": source.id}))
    with pytest.raises(ValueError, match="it may not leave its folder"):
        unpack(store, entry, below)
    assert list(tmp_path.rglob("evil.py")) == []


def test_a_source_that_is_not_there_is_named(tmp_path):
    store = Store(str(tmp_path))
    entry = SimpleNamespace(n=3, document=SimpleNamespace(sealed={}))
    with pytest.raises(ValueError, match="the source of round 3 is not in the store"):
        unpack(store, entry, tmp_path)
