import pytest

from harness.update.gates.grad_norm import GradNorm


@pytest.mark.parametrize(
    ("value", "passed"), [(0.0, True), (2.0, True), (2.0 * 1.01, False), (float("nan"), False)]
)
def test_it_passes_up_to_its_bound(report, value, passed):
    verdict = GradNorm(max=2.0)(report(grad_norm=value))
    assert (verdict["name"], verdict["passed"]) == ("grad_norm", passed)
    assert verdict["numbers"]["max"] == 2.0


def test_what_is_not_finite_is_spelt(report):
    assert GradNorm(max=2.0)(report(grad_norm=float("nan")))["numbers"]["grad_norm"] == "nan"


def test_a_bound_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"max is -1.0; it is a finite number above"):
        GradNorm(max=-1.0)
