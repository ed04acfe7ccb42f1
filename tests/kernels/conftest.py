"""One table of tolerances for all kernels, and which tests the interpreter runs.

A result may err from float64 by 1.5 times what torch's own result in that dtype errs, and a few
ulp.
"""

import os
from typing import Protocol

import pytest
import torch
from torch import Tensor

ULPS = {torch.float64: 16, torch.float32: 12, torch.bfloat16: 2}
"""Units in the last place, relative to the exact value, on top of torch's own error."""
FACTOR = 1.5

# interpreted tests need TRITON_INTERPRET before triton is imported: test_interpreted.py starts them
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]


class Within(Protocol):
    def __call__(
        self, actual: Tensor, exact: Tensor, native: Tensor, *, scale: float = 0.0
    ) -> None: ...


@pytest.fixture
def within() -> Within:
    """Assert that `actual` errs from `exact` (float64) no more than the table allows.

    torch's own error is its largest over the last axis. `scale` is the size of operands that
    cancel: ulp are taken of whichever is larger, it or the exact value.
    """

    def check(actual: Tensor, exact: Tensor, native: Tensor, *, scale: float = 0.0) -> None:
        assert exact.dtype == torch.float64
        assert actual.shape == exact.shape
        same = (actual.double() == exact) | (actual.isnan() & exact.isnan())
        error = torch.where(same, 0.0, (actual.double() - exact).abs())
        own = torch.where(native.double() == exact, 0.0, (native.double() - exact).abs())
        own = own.nan_to_num(0.0, posinf=0.0)
        allowed = FACTOR * (own.amax(-1, keepdim=True) if own.ndim else own)
        size = torch.where(exact.isfinite(), exact.abs(), 0.0).clamp(min=scale)
        eps = torch.finfo(actual.dtype).eps
        tiny = torch.finfo(torch.float32).tiny
        allowed = allowed + ULPS[actual.dtype] * eps * size + tiny
        worst = (error - allowed).argmax()
        assert bool((error <= allowed).all()), (
            f"{actual.flatten()[worst]} instead of {exact.flatten()[worst]} at {int(worst)}: "
            f"error {error.flatten()[worst]:.3g}, allowed {allowed.flatten()[worst]:.3g}"
        )

    return check
