import pytest

from harness.update.gates.always import Always


def test_it_decides_without_looking():
    assert Always()({})["passed"]
    assert not Always(decision="reject")({})["passed"]


def test_a_third_decision_is_refused():
    with pytest.raises(ValueError, match=r"decision is 'maybe'; it is accept or reject"):
        Always(decision="maybe")
