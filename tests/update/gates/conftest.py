from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def report() -> Callable[..., dict[str, Any]]:
    """An update's report with these metrics, `policy_kl` for `policy/kl`."""

    def make(**metrics: float) -> dict[str, Any]:
        usual = {"loss": 0.5, "grad_norm": 1.0}
        return {"metrics": usual | {k.replace("policy_", "policy/"): v for k, v in metrics.items()}}

    return make
