"""Counts of a rollout's work."""

from harness.work import seen


def test_tokens_seen_is_a_plain_sum():
    assert seen(3, 7) == 4 + 5 + 6 + 7
    assert seen(5, 5) == 0
