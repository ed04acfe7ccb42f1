import json

import pytest

from harness.identity import canonical
from harness.update.gates.finite import Finite


def test_finite_metrics_pass(report):
    verdict = Finite()(report(policy_kl=0.1))
    assert verdict == {
        "name": "finite", "passed": True, "numbers": {"loss": 0.5, "grad_norm": 1.0}
    }  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "nan"])
def test_any_other_metric_fails_and_is_shown(report, value):
    verdict = Finite()(report(policy_entropy=value))
    assert not verdict["passed"]
    assert verdict["numbers"]["policy/entropy"] == str(value)
    assert json.loads(canonical(verdict)) == verdict
