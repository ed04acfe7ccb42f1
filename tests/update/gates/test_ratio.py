import pytest

from harness.update.gates.ratio import Ratio


@pytest.mark.parametrize(
    ("value", "passed"), [(0.0, True), (8.0, True), (8.0 * 1.01, False), (float("nan"), False)]
)
def test_it_passes_up_to_its_bound(report, value, passed):
    verdict = Ratio(max=8.0)(report(policy_ratio_max=value))
    assert (verdict["name"], verdict["passed"]) == ("ratio", passed)
    assert verdict["numbers"]["max"] == 8.0


def test_what_is_not_finite_is_spelt(report):
    assert (
        Ratio(max=8.0)(report(policy_ratio_max=float("nan")))["numbers"]["policy/ratio_max"]
        == "nan"
    )


def test_a_bound_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"max is -1.0; it is a finite number above"):
        Ratio(max=-1.0)
