import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from harness.credit.group import Group, group_advantages

NAN = float("nan")


@pytest.mark.parametrize(
    ("rewards", "credit", "expected"),
    [
        # verl
        ([1, 0, 0, 1], Group(), [0.8660239, -0.8660239, -0.8660239, 0.8660239]),
        ([1, 0, 0, 0], Group(), [1.499997, -0.499999, -0.499999, -0.499999]),
        ([1, 0], Group(), [0.70710578, -0.70710578]),
        # TRL
        ([1, 0, 0, 1], Group(eps=1e-4), [0.86587543, -0.86587543, -0.86587543, 0.86587543]),
        ([1, 0, 0, 0], Group(eps=1e-4), [1.49970006, -0.49990002, -0.49990002, -0.49990002]),
        # OpenRLHF
        ([1, 0, 0, 1], Group(eps=1e-9), [0.8660254, -0.8660254, -0.8660254, 0.8660254]),
        # NeMo-RL
        (
            [1, 0, 0, 1],
            Group(baseline="leave_one_out", scale="others"),
            [1.1546985, -1.1546985, -1.1546985, 1.1546985],
        ),
        (
            [1, 0, 0, 0],
            Group(baseline="leave_one_out", scale="others"),
            [1.0, -0.57734927, -0.57734927, -0.57734927],
        ),
        ([1, 0], Group(baseline="leave_one_out", scale="others"), [1.0, -1.0]),
    ],
)
def test_the_numbers_of_the_peers(episode_credit, rewards, credit, expected):
    assert_allclose(episode_credit(credit, rewards, len(rewards)), expected, rtol=3e-7)


@pytest.mark.parametrize("scale", ["group", "batch", "others", "none"])
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
def test_a_group_of_equal_rewards_gets_exactly_nothing(episode_credit, baseline, scale):
    credit = Group(baseline=baseline, scale=scale)
    assert (episode_credit(credit, [0.1] * 7 + [1, 0, 1, 0, 1, 0, 1], 7)[:7] == 0).all()


def test_nearly_equal_rewards_keep_their_digits(episode_credit):
    shifted = episode_credit(Group(), [1e6, 1e6 + 0.5, 1e6 + 1, 1e6 + 0.5], 4)
    assert_allclose(shifted, episode_credit(Group(), [0, 0.5, 1, 0.5], 4), rtol=1e-6)


def test_equal_others_do_not_blow_up_the_odd_one_out(episode_credit):
    # the standard deviation of seven equal rewards is 0, not a residue of rounding
    credit = Group(baseline="leave_one_out", scale="others")
    assert_allclose(episode_credit(credit, [0.35] * 7 + [1.0], 8)[7], 0.65, rtol=1e-6)


@pytest.mark.parametrize("scale", ["group", "batch", "others", "none"])
def test_an_unscorable_episode_changes_nothing_for_the_others(episode_credit, scale):
    credit = Group(scale=scale)
    with_hole = episode_credit(credit, [1, NAN, 0, 1], 4)
    assert with_hole[1] == 0
    assert_allclose(with_hole[[0, 2, 3]], episode_credit(credit, [1, 0, 1], 3), rtol=1e-6)


@pytest.mark.parametrize("scale", ["group", "batch", "others", "none"])
def test_a_lone_scored_episode_and_an_unscored_group_get_nothing(episode_credit, scale):
    got = episode_credit(Group(scale=scale), [5, NAN, NAN, NAN, 1, 0], 2)
    assert (got[:4] == 0).all()
    assert got[4] > 0 > got[5]


def test_unscorable_episodes_are_named_in_the_lesson(batch):
    G = Group()(*batch([1, NAN, 0, 1], 2))
    assert G.meta["unscorable"] == [1]
    assert G.meta["statistics"] == {
        "reward_mean": pytest.approx(2 / 3),
        "reward_std": pytest.approx(3**-0.5),
        "constant_groups": 1,
        "unscorable": 1,
    }


def test_an_empty_batch_has_an_empty_lesson(batch):
    G = Group()(*batch([], 2))
    assert G.advantages_T.shape == (0,)
    assert G.meta["statistics"]["reward_mean"] == "nan"
    assert G.id.startswith("sha256:")


def test_an_episode_without_actions_counts_in_its_group(batch):
    G = Group(scale="none")(*batch([1, 0], 2, masks=[[0, 1], [0, 0]]))
    assert G.advantages_T.tolist() == [0, 0.5, 0, 0]


def test_the_lesson_carries_what_training_needs(batch):
    X, Z, F, seed = batch([1, 0], 2, threshold=[-5.0] * 6, ref_logprobs=[-2.0] * 6)
    G = Group()(X, Z, F, seed)
    names = ["token_ids", "is_action", "episode_offsets", "logprobs", "threshold", "ref_logprobs"]
    assert all(G.arrays[name] is Z.arrays[name] for name in names)
    assert G.advantages_T.dtype == np.float32
    assert (G.meta["use"], G.meta["pairs"], G.meta["attempts"]) == ("policy", [], 2)
    assert G.meta["sampling"] == Z.meta["sampling"]


rewards = st.lists(st.floats(-10, 10) | st.just(NAN), min_size=4, max_size=4)


@settings(max_examples=50, deadline=None)
@given(
    rewards, st.permutations(range(4)), st.sampled_from(["group", "batch", "others", "none"]),
    st.sampled_from(["mean", "leave_one_out"]),
)  # fmt: skip
def test_permuting_a_group_permutes_its_credit(values, order, scale, baseline):
    values = np.array(values)
    straight = group_advantages(values, 4, baseline, scale, 1e-3)
    permuted = group_advantages(values[order], 4, baseline, scale, 1e-3)
    assert_allclose(permuted, straight[order], rtol=1e-9, atol=1e-9)


def test_a_group_of_one_is_refused():
    with pytest.raises(
        ValueError, match=r"credit group compares the attempts at a problem, but att"
    ):
        Group().check(1)
    Group().check(2)


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match=r"baseline is 'median'; it is one of mean, leave_one_out"):
        Group(baseline="median")
    with pytest.raises(ValueError, match=r"scale is 'x'; it is one of group, batch, others, none"):
        Group(scale="x")
    with pytest.raises(ValueError, match=r"eps is 0.0; it is above 0"):
        Group(eps=0.0)


def test_feedback_of_another_shape_or_an_infinite_reward_is_refused(batch):
    X, Z, _, seed = batch([1, 0], 2)
    with pytest.raises(ValueError, match=r"there are 2 episodes"):
        Group()(X, Z, batch([1, 0, 1], 3)[2], seed)
    with pytest.raises(ValueError, match=r"infinite reward"):
        Group()(X, Z, batch([1, float("inf")], 2)[2], seed)
