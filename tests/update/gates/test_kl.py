import pytest

from harness.update.gates.kl import KL


@pytest.mark.parametrize(
    ("value", "passed"), [(0.0, True), (0.25, True), (0.25 * 1.01, False), (float("nan"), False)]
)
def test_it_passes_up_to_its_bound(report, value, passed):
    verdict = KL(budget=0.25)(report(policy_kl=value))
    assert (verdict["name"], verdict["passed"]) == ("kl", passed)
    assert verdict["numbers"]["budget"] == 0.25


def test_what_is_not_finite_is_spelt(report):
    assert KL(budget=0.25)(report(policy_kl=float("nan")))["numbers"]["policy/kl"] == "nan"


def test_a_bound_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"budget is -1.0; it is a finite number above"):
        KL(budget=-1.0)


def test_a_metric_that_the_update_does_not_report_is_named(report):
    with pytest.raises(ValueError, match=r"'policy/kl', but the update reports grad_norm, loss"):
        KL()(report())
