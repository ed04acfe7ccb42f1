import pytest

from harness.update.gates.clip_fraction import ClipFraction


@pytest.mark.parametrize(
    ("value", "passed"), [(0.0, True), (0.5, True), (0.5 * 1.01, False), (float("nan"), False)]
)
def test_it_passes_up_to_its_bound(report, value, passed):
    verdict = ClipFraction(max=0.5)(report(policy_clip_fraction=value))
    assert (verdict["name"], verdict["passed"]) == ("clip_fraction", passed)
    assert verdict["numbers"]["max"] == 0.5


def test_what_is_not_finite_is_spelt(report):
    assert (
        ClipFraction(max=0.5)(report(policy_clip_fraction=float("nan")))["numbers"][
            "policy/clip_fraction"
        ]
        == "nan"
    )


def test_a_bound_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"max is -1.0; it is a finite number above"):
        ClipFraction(max=-1.0)
