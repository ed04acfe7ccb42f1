import pytest
from numpy.testing import assert_allclose

from harness.credit.group import Group
from harness.credit.kl_in_reward import KLInReward
from harness.credit.reinforce import Reinforce
from harness.credit.rloo import RLOO

# logprobs are −1, so δ is .5 on the actions
REF = [0, -1.5, -1.5]
NONE = Reinforce(baseline="none")


@pytest.mark.parametrize(("kind", "k"), [("k1", 0.5), ("k2", 0.125), ("k3", 0.10653065971263342)])
def test_every_token_pays_for_itself(batch, kind, k):
    G = KLInReward(NONE, coef=2.0, kind=kind)(*batch([1.0], 1, ref_logprobs=REF))
    assert_allclose(G.advantages_T, [0, 1 - 4 * k, 1 - 2 * k], rtol=1e-6)


def test_an_episode_pays_for_its_tokens_together(batch):
    # as TRL's RLOO trainer: k1 summed, and taken off before the baseline
    ref = [*REF, 0, -1, -1]
    G = KLInReward(RLOO(), coef=0.1)(*batch([1.0, 0.0], 2, ref_logprobs=ref))
    assert_allclose(G.advantages_T, [0, 0.9, 0.9, 0, -0.9, -0.9], rtol=1e-6)


def test_a_reference_that_is_the_policy_costs_nothing(batch):
    inputs = batch([1.0, 0.0], 2, ref_logprobs=[-1] * 6)
    for inner in (Group(), NONE):
        penalised = KLInReward(inner, coef=5.0, kind="k3")(*inputs)
        assert (penalised.advantages_T == inner(*inputs).advantages_T).all()


def test_statistics_are_of_the_rewards_before_the_penalty(batch):
    G = KLInReward(Group(), coef=0.1)(*batch([1.0, 0.0], 2, ref_logprobs=REF * 2))
    assert G.meta["statistics"]["reward_mean"] == 0.5
    assert G.meta["statistics"]["penalty_mean"] == pytest.approx(0.1)


def test_the_unscorable_stay_so(batch):
    G = KLInReward(Group())(*batch([1.0, float("nan")], 2, ref_logprobs=REF * 2))
    assert G.meta["unscorable"] == [1]
    assert not G.advantages_T.any()


def test_settings_and_inputs_that_cannot_be_are_refused(batch):
    with pytest.raises(ValueError, match="needs the log-probabilities of a reference"):
        KLInReward(Group())(*batch([1.0, 0.0], 2))
    with pytest.raises(ValueError, match="kind is 'k4'; it is one of k1, k2, k3"):
        KLInReward(Group(), kind="k4")
    with pytest.raises(ValueError, match=r"coef is 0.0; it is a finite number above 0"):
        KLInReward(Group(), coef=0.0)
    with pytest.raises(ValueError, match="credit group compares"):
        KLInReward(Group()).check(1)
