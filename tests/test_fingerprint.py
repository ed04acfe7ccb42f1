import importlib
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from harness import fingerprint as module
from harness.credit.group import Group
from harness.credit.rloo import RLOO
from harness.fingerprint import archive, fingerprint, libraries, machine

SOURCE = '''"""A map."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Double:
    """Twice."""

    by: int = 2

    def __call__(self, x):
        """The product."""
        # nothing to see here
        return self.by * x
'''


@pytest.fixture
def of(tmp_path, monkeypatch):
    """The fingerprint of the map of a source text."""
    monkeypatch.syspath_prepend(tmp_path)

    def take(source: str, **fields: Any) -> str:
        (tmp_path / "probe_map.py").write_text(source)
        sys.modules.pop("probe_map", None)
        importlib.invalidate_caches()
        module._closure.cache_clear()
        found = fingerprint(importlib.import_module("probe_map").Double(**fields))
        sys.modules.pop("probe_map", None)
        module._closure.cache_clear()
        return found

    return take


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# nothing to see here", "# something else"),
        ('"""The product."""\n', ""),
        ('"""Twice."""', '"""Two times."""'),
        ('"""A map."""', '"""The map."""'),
        ("return self.by * x", "return (self.by\n                * x)"),
    ],
)
def test_a_comment_docstring_or_layout_keeps_it(of, old, new):
    assert old in SOURCE
    assert of(SOURCE.replace(old, new)) == of(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.by * x", "x * self.by"),
        ("by: int = 2", "by: int = 3"),
        ("from dataclasses import dataclass", "from dataclasses import dataclass\nimport json"),
    ],
)
def test_a_change_of_code_moves_it(of, old, new):
    assert of(SOURCE.replace(old, new)) != of(SOURCE)


def test_settings_do_not_move_it(of):
    assert of(SOURCE, by=5) == of(SOURCE)


def test_a_change_in_a_module_behind_it_moves_it(monkeypatch):
    before = fingerprint(RLOO())
    parse = module.ast.parse
    edited = lambda text: parse(text.replace("leave_one_out", "leave_one_in"))  # noqa: E731
    module._closure.cache_clear()
    monkeypatch.setattr(module.ast, "parse", edited)
    after = fingerprint(RLOO())
    monkeypatch.undo()
    module._closure.cache_clear()
    assert after != before
    assert fingerprint(RLOO()) == before


def test_objects_in_fields_count_and_handles_do_not():
    @dataclass(frozen=True)
    class Holder:
        inner: Any = None
        handle: Any = field(default=None, metadata={"identity": False})

    # not imported by name: this module would then have it behind itself
    other = importlib.import_module("harness.credit.gae").GAE()
    assert fingerprint(Holder()) == fingerprint(Holder(handle=other))
    assert fingerprint(Holder(inner={"a": [other]})) != fingerprint(Holder())


def test_the_version_of_a_library_moves_it(monkeypatch):
    before = fingerprint(Group())
    monkeypatch.setattr(module, "libraries", lambda: {**libraries(), "torch": "0.0"})
    assert fingerprint(Group()) != before


def test_relative_imports_are_followed():
    assert "harness.credit.packing" in module._closure("harness.credit.group")
    assert "harness.credit.statistics" in module._closure("harness.credit.group")
    assert "harness.kernels.philox_sample.reference" in module._closure("harness.policies.resident")


def test_the_archive_holds_the_source_that_runs():
    found = archive().arrays
    for name in ("round.py", "credit/group.py", "conf/config.yaml", "kernels/measure.py"):
        assert name in found
    text = bytes(found["round.py"]).decode()
    assert "def execute(" in text
    assert all(isinstance(data, np.ndarray) for data in found.values())


def test_the_platform_names_what_cannot_be_set():
    facts = machine()
    assert {"system", "machine", "python", "libraries", "cpu_capability"} <= set(facts)
    assert facts["libraries"]["torch"] == libraries()["torch"]
