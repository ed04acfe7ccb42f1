"""Every kernel, in every configuration, compiled for GPUs that are not here.

aot.csv records what the assembler made of them, by version of Triton. Any version must spill
nothing that is not recorded, use no float64, and keep its wide loads; a recorded version also keeps
its registers and shared memory.
"""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KEY = ("triton", "kernel", "configuration", "arch")
SLACK = 16
"""Registers that another build of the same version may use more."""


def by_key(text: str) -> dict[tuple[str, ...], dict[str, int]]:
    """Rows of the table by what was compiled."""
    return {
        tuple(row[name] for name in KEY): {
            name: int(value) for name, value in row.items() if name not in KEY
        }
        for row in csv.DictReader(io.StringIO(text))
    }


def test_compiled_without_a_gpu(tmp_path: Path) -> None:
    path = filter(None, (os.environ.get("PYTHONPATH"), str(HERE.parents[1])))
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(path),
    }
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(HERE / "aot.py")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = by_key(done.stdout)
    recorded = by_key((HERE / "aot.csv").read_text())
    versions = {key[0] for key in recorded}
    assert len(found) == len(recorded) / len(versions)
    (tmp_path / "aot.csv").write_text(done.stdout)
    for key, measured in found.items():
        known = recorded.get(key)
        nearest = known or recorded[(max(versions), *key[1:])]
        assert measured["float64"] == 0, key
        assert measured["spills"] <= nearest["spills"], (key, measured)
        assert (measured["wide_loads"] > 0) == (nearest["wide_loads"] > 0), (key, measured)
        if known is not None:
            assert measured["registers"] <= known["registers"] + SLACK, (key, measured)
            assert measured["shared"] <= known["shared"], (key, measured)


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_spills_are_recorded_with_a_reason_or_absent(version: str) -> None:
    recorded = by_key((HERE / "aot.csv").read_text())
    assert any(key[0] == version for key in recorded)
    assert [key for key, row in recorded.items() if row["spills"] or row["float64"]] == []
