import subprocess
import sys
from pathlib import Path

import pytest
import rounds
import synthetic

from harness.ledger import reader
from harness.ledger.verify import verify
from harness.store import Store

ROOT = Path(__file__).resolve().parents[2]


def test_a_synthetic_lineage_is_one_that_verifies_and_goes_on(ledger, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "PAGE", 7)
    monkeypatch.setattr(reader, "KEPT", 10)
    store = Store(str(tmp_path / "cas"))
    lineage = ledger.begin("a", rounds.begin(store=store))
    assert synthetic.grow(ledger, lineage, 40, store).n == 39
    assert lineage.head().n == 39
    entry = rounds.append(lineage, store=store)
    rounds.append(lineage, lineage.at(20), branch="side", salt="x", store=store)
    report = verify(lineage, store, deep=True)
    assert (report.problems, report.notes, report.records) == ([], [], 43)
    assert reader.seals(lineage)[-1] == entry.seal
    assert len(reader.seals(lineage, "side")) == 23
    with pytest.raises(ValueError, match="has no branch 'none'"):
        reader.seals(lineage, "none")


def test_few_runs_are_in_memory_at_a_time(ledger, monkeypatch):
    monkeypatch.setattr(reader, "PAGE", 5)
    monkeypatch.setattr(reader, "KEPT", 10)
    lineage = ledger.begin("a", rounds.begin())
    synthetic.grow(ledger, lineage, 60)
    read = reader.Reader(lineage)
    most = 0
    for entry in lineage.walk():
        assert read.run(entry.run).info.run_id == entry.run
        most = max(most, len(read._kept))
    assert most <= 10
    assert read.rest() == {}


@pytest.mark.slow
def test_a_hundred_thousand_records_are_as_quick_as_ten():
    script = str(ROOT / "sweeps" / "ledger_scale.py")
    subprocess.run([sys.executable, script, "10", "100000"], check=True, timeout=7200)
