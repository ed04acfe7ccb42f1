"""Launches under the interpreter: overflow checked, memory poisoned, tiles small."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from triton.runtime import interpreter

from harness.kernels.credit_objective import fused as credit
from harness.kernels.policy_rows import fused as rows


@pytest.fixture
def overflow_raises() -> Iterator[None]:
    """An integer of 32 bits that overflows raises."""
    builder = interpreter.interpreter_builder
    before = builder.options
    builder.options = dataclasses.replace(before, debug=True, sanitize_overflow=True)
    yield
    builder.options = before


@pytest.fixture(autouse=True)
def _hidden_checks(overflow_raises: None) -> Iterator[None]:
    """Overflow raises, and IEEE special values are not worth a warning of numpy's."""
    with numpy.errstate(all="ignore"):
        yield


@pytest.fixture
def far_T(tmp_path: Path) -> torch.Tensor:
    """More than 2³¹ elements, of which only those that are written take memory."""
    return torch.from_file(str(tmp_path / "far"), shared=True, size=(1 << 31) + (1 << 16))


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that nobody wrote holds NaN, and the largest integers."""

    def poisoned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def fresh(*sizes: Any, **named: Any) -> torch.Tensor:
            made = make(*sizes, **named)
            if made.numel() < 1 << 24:
                kind = made.dtype
                made.fill_(float("nan") if kind.is_floating_point else torch.iinfo(kind).max)
            return made

        return fresh

    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles and a tail, in rows that are quick to interpret."""
    monkeypatch.setattr(rows, "tile", lambda vocabulary: (64, 4))
    monkeypatch.setattr(credit, "BLOCK", 32)
