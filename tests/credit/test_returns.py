import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from harness.credit.returns import (
    check_returns,
    discounts,
    reverse_scan,
    token_rewards,
    turn_returns,
)

MASK = [0, 1, 1, 0, 0, 1, 1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-5, 5)), max_size=40))
def test_the_scan_is_the_recurrence(pairs):
    a, b = np.array(pairs, np.float64).reshape(-1, 2).T
    y = np.zeros(len(b) + 1)
    for t in range(len(b) - 1, -1, -1):
        y[t] = b[t] + (a[t] * y[t + 1] if t + 1 < len(b) else 0)
    assert_allclose(reverse_scan(a, b), y[:-1], rtol=1e-12, atol=1e-12)


def test_the_scan_leaves_its_inputs_alone():
    a, b = np.array([1.0, 1.0]), np.array([1.0, 1.0])
    assert reverse_scan(a, b).tolist() == [2, 1]
    assert a.tolist() == b.tolist() == [1, 1]


def test_a_return_is_carried_across_observations(batch):
    _, Z, F, _ = batch([1.0], 1, masks=[MASK])
    G_T = reverse_scan(discounts(Z, 1.0, "token"), token_rewards(Z, F, "episode"))
    assert G_T[Z.is_action_T].tolist() == [1, 1, 1, 1]


def test_a_discount_counts_tokens_or_turns(batch):
    _, Z, F, _ = batch([1.0], 1, masks=[MASK])
    r_T = token_rewards(Z, F, "episode")
    per_token = reverse_scan(discounts(Z, 0.5, "token"), r_T)[Z.is_action_T]
    per_turn = reverse_scan(discounts(Z, 0.5, "turn"), r_T)[Z.is_action_T]
    assert per_token.tolist() == [0.125, 0.25, 0.5, 1]
    assert per_turn.tolist() == [0.5, 0.5, 1, 1]


def test_rewards_lie_where_their_turn_ends_and_the_rest_at_the_end(batch):
    _, Z, F, _ = batch([1.5], 1, masks=[MASK], turn_rewards=[0.25, 0.5])
    assert token_rewards(Z, F, "turn").tolist() == [0, 0, 0.25, 0, 0, 0, 1.25]
    assert token_rewards(Z, F, "episode").tolist() == [0, 0, 0, 0, 0, 0, 1.5]


def test_penalties_stay_on_their_tokens(batch):
    _, Z, F, _ = batch([1.5], 1, masks=[MASK])
    penalties = np.array([0, 0.5, 0, 0, 0, 0, 0.25])
    F = F.replace({}, rewards=F.rewards_B - 0.75, token_penalties=penalties)
    assert token_rewards(Z, F, "episode").tolist() == [0, -0.5, 0, 0, 0, 0, 1.25]


def test_what_is_unscorable_or_has_no_actions_keeps_no_reward(batch):
    _, Z, F, _ = batch([float("nan"), 3.0], 1, masks=[MASK, [0, 0]], turn_rewards=[1, 1])
    assert not token_rewards(Z, F, "turn").any()


def test_returns_of_turns_do_not_leave_their_episode(batch):
    _, Z, F, _ = batch(
        [2.0, float("nan"), 1.0], 1, masks=[MASK, MASK, [1]], turn_rewards=[1, 0.5, 7, 7, 1]
    )
    assert_allclose(turn_returns(Z, F, 0.5), [1.5, 1.0, np.nan, np.nan, 1.0])


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"rewards is 'token'; it is one of turn, episode"):
        check_returns("token", 1.0)
    with pytest.raises(ValueError, match=r"gamma is 1.1 and lam 1.0; a discount lies between"):
        check_returns("turn", 1.1)
