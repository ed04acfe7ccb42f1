import pytest

from harness.credit.dr_grpo import DrGRPO


def test_credit_is_the_reward_about_the_mean(episode_credit):
    assert episode_credit(DrGRPO(), [1, 0, 0, 0, 2, 2], 2).tolist() == [0.5, -0.5, 0, 0, 0, 0]


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="credit dr_grpo compares the attempts at a problem"):
        DrGRPO().check(1)
