"""The benches run, on small shapes."""

import importlib

import pytest

from harness.kernels.measure import COLUMNS, Row


@pytest.mark.parametrize(
    "kernel", ["credit_objective", "linear_policy", "philox_sample", "policy_rows"]
)
def test_a_dry_run_measures_every_provider(kernel: str) -> None:
    rows: list[Row] = []
    importlib.import_module(f"harness.kernels.{kernel}.bench").main(rows.append, dry=True)
    assert kernel in {row["provider"] for row in rows}
    for row in rows:
        assert set(row) <= set(COLUMNS)
        assert float(row["seconds"]) > 0
        assert float(row["ratio"]) > 0
        assert row["commit"]
