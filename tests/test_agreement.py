from types import SimpleNamespace

import pytest

from harness.agreement import check_agreement
from harness.credit.best_of import BestOf
from harness.credit.gae import GAE
from harness.credit.group import Group
from harness.credit.kl_in_reward import KLInReward
from harness.credit.pairs import Pairs
from harness.credit.vtrace import VTrace
from harness.policies.tiny import Tiny
from harness.rollout.reference import Reference
from harness.rollout.sampled import Sampled
from harness.update.objectives.cross_entropy import CrossEntropy
from harness.update.objectives.dpo import DPO
from harness.update.objectives.ppo import PPO

PLAIN, CRITIC = Tiny(), Tiny(critic=True)
NONE, KEPT = Sampled(), Sampled(reference=Reference())
VALUE, KL = PPO(value_coef=0.5), PPO(kl="k3", kl_coef=0.1)


@pytest.mark.parametrize(
    ("model", "rollout", "credit", "objective"),
    [
        (PLAIN, NONE, Group(), PPO()),
        (PLAIN, KEPT, Group(), KL),
        (PLAIN, KEPT, KLInReward(Group()), PPO()),
        (CRITIC, KEPT, KLInReward(GAE()), PPO(value_coef=0.5, kl="k1", kl_coef=0.1)),
        (CRITIC, NONE, VTrace(), VALUE),
        (PLAIN, NONE, BestOf(), CrossEntropy()),
        (PLAIN, NONE, Pairs(), DPO()),
        (PLAIN, KEPT, Pairs(), DPO(reference="recorded")),
        (SimpleNamespace(), SimpleNamespace(), SimpleNamespace(), SimpleNamespace()),
    ],
)
def test_maps_that_have_what_they_need_agree(model, rollout, credit, objective):
    check_agreement(model, rollout, credit, objective)


@pytest.mark.parametrize(
    ("model", "rollout", "credit", "objective", "sentence"),
    [
        (PLAIN, NONE, Group(), KL,
         r"update\.objective\.kl_coef=0\.1 needs ref_logprobs, but the rollout records no ref"),
        (PLAIN, NONE, Pairs(), DPO(reference="recorded"),
         r"update\.objective\.reference=recorded needs ref_logprobs, but the rollout records no"),
        (PLAIN, NONE, KLInReward(Group()), PPO(),
         r"credit kl_in_reward needs ref_logprobs, but the rollout records no reference; give one"),
        (PLAIN, KEPT, KLInReward(GAE()), PPO(),
         r"credit kl_in_reward needs values, but the model has no critic; take a model with"),
        (PLAIN, NONE, GAE(), VALUE, r"credit gae needs values, but the model has no critic"),
        (PLAIN, NONE, VTrace(), PPO(), r"credit vtrace needs values, but the model has no critic"),
        (CRITIC, NONE, Group(), VALUE,
         r"update\.objective\.value_coef=0\.5 needs values, but credit group gives none; take"),
        (PLAIN, NONE, Group(), DPO(),
         r"credit group is for 'policy', but the objective dpo learns from 'pairs'; change either"),
        (PLAIN, KEPT, KLInReward(Pairs()), PPO(), r"credit kl_in_reward is for 'pairs', but the"),
        (CRITIC, NONE, GAE(observations="none"), VALUE,
         r"credit\.observations is 'none', which reads values at observations, but the rollout"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_one_sentence(model, rollout, credit, objective, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_agreement(model, rollout, credit, objective)
