"""The terms that all policy objectives share, through ppo."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from harness.update.objectives.ppo import PPO

MASKS = [[0, 1, 1, 0, 1], [0, 0, 1], [0, 1, 1, 1]]
A = np.array([0, 1.5, -0.5, 0, 1, 0, 0, -2, 0, 0.5, -1, 2])
rng = np.random.default_rng(0)
LOGP, REF = rng.normal(-1, 0.5, 12), rng.normal(-1, 0.5, 12)


@pytest.mark.parametrize("kl", [None, "k1", "k2", "k3"])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum"])
def test_loss_and_gradient_are_those_of_a_plain_definition(lesson, kl, aggregation):
    G = lesson(MASKS, A, ref_logprobs=REF)
    correction = np.linspace(0.5, 1.5, 12)
    objective = PPO(
        kl=kl, kl_coef=0.3 if kl else 0.0, aggregation=aggregation, entropy_coef=0.7, clip_high=0.3
    )
    dlogp, loss = objective.coefficients(G, LOGP, correction_T=correction)

    logp = torch.tensor(LOGP, requires_grad=True)
    total = torch.zeros((), dtype=torch.float64)
    used = int(G.arrays["is_action"].sum())
    for start, row in zip([0, 5, 8], MASKS, strict=True):
        for t in [start + k for k, m in enumerate(row) if m]:
            ratio = (logp[t] + 1).exp()
            a = float(G.advantages_T[t])
            clipped = ratio.clamp(0.8, 1.3)
            term = correction[t] * -torch.minimum(a * ratio, a * clipped)
            gap = logp[t] - float(np.float32(REF[t]))
            kinds = {None: 0.0, "k1": gap, "k2": gap**2 / 2, "k3": torch.exp(-gap) - 1 + gap}
            term = term + 0.3 * kinds[kl]
            count = {"token_mean": used, "sequence_mean": 3 * sum(row), "sequence_sum": 3}
            total = total + term / count[aggregation]
    total.backward()
    assert_allclose(loss, total.item(), rtol=1e-6)
    assert_allclose(dlogp, logp.grad.numpy(), rtol=1e-5, atol=1e-8)


def test_any_split_into_micro_batches_has_the_same_gradient(lesson):
    objective = PPO(aggregation="sequence_mean")
    G = lesson(MASKS, A)
    whole, loss = objective.coefficients(G, LOGP)
    kernel, w_T = objective.kernel(), objective.weights(G)
    from harness.kernels.policy_rows.reference import Rows, token_loss

    parts, total = [], 0.0
    for start, end in [(0, 1), (1, 7), (7, 12)]:
        logp = torch.tensor(LOGP[start:end], requires_grad=True)
        rows = Rows(
            targets_T=torch.zeros(end - start, dtype=torch.int64),
            weights_T=torch.tensor(w_T[start:end], dtype=torch.float64),
            old_logprobs_T=torch.tensor(G.arrays["logprobs"][start:end], dtype=torch.float64),
            advantages_T=torch.tensor(G.advantages_T[start:end], dtype=torch.float64),
        )
        part = token_loss(logp, None, rows, kernel).loss.sum()
        parts += torch.autograd.grad(part, logp)[0].tolist()
        total += part.item()
    assert (whole == np.array(parts, np.float32)).all()
    assert_allclose(loss, total, rtol=1e-14)


def test_k1_k2_and_k3_have_their_values(lesson):
    expected = {"k1": 0.5, "k2": 0.125, "k3": 0.10653065971263342}
    for kl, value in expected.items():
        G = lesson([[1]], [0.0], ref_logprobs=[-1.5])
        _, loss = PPO(kl=kl, kl_coef=1.0).coefficients(G, np.array([-1.0]))
        assert_allclose(loss, value, rtol=1e-15)


def test_before_the_first_step_the_loss_is_minus_the_mean_advantage(lesson):
    G = lesson(MASKS, A, ref_logprobs=[-1.0] * 12)
    dlogp, loss = PPO(kl="k3", kl_coef=5.0).coefficients(G, G.arrays["logprobs"])
    weights = PPO().weights(G)
    used = weights != 0
    assert_allclose(dlogp[used], (-weights * G.advantages_T)[used], rtol=1e-6)
    assert_allclose(loss, -(weights * G.advantages_T).sum(), rtol=1e-6)


def test_rows_without_credit_are_skipped_unless_a_term_needs_them(lesson):
    G = lesson([[0, 1, 1], [1, 1]], [0, 0, 2, 0, 0], unscorable=[], ref_logprobs=[0] * 5)
    assert PPO().row_mask(G).tolist() == [False, False, True, False, False]
    everything = [False, True, True, True, True]
    assert PPO(entropy_coef=0.1).row_mask(G).tolist() == everything
    assert PPO(kl="k2", kl_coef=0.1).row_mask(G).tolist() == everything
    assert (PPO().weights(G) != 0).tolist() == everything


def test_a_group_without_credit_still_has_the_gradient_of_its_kl(lesson):
    G = lesson([[1, 1]], [0, 0], ref_logprobs=[-2, -2])
    dlogp, _ = PPO(kl="k2", kl_coef=1.0).coefficients(G, np.array([-1.0, -3.0]))
    assert_allclose(dlogp, [0.5, -0.5])


def test_unscorable_episodes_have_no_coefficient(lesson):
    G = lesson([[1], [1]], [1, 0], unscorable=[1], ref_logprobs=[-2, -2])
    objective = PPO(kl="k2", kl_coef=1.0, entropy_coef=1.0)
    assert objective.coefficients(G, np.array([-1.0, np.nan]))[0].tolist()[1] == 0
    assert objective.row_mask(G).tolist() == [True, False]
    assert objective.dentropy(G).tolist() == [-1, 0]


def test_the_value_loss_is_clipped_and_has_its_gradient(lesson):
    old = np.zeros(8)
    returns = np.array([1, 1, 1, 1, -1, 0, 0.5, 0])
    values = np.array([0.1, 0.9, 2.5, -0.5, -0.1, 0, 0.2, 7])
    G = lesson([[1] * 7 + [0]], values=old, returns=returns)
    dvalues, loss = PPO(value_coef=0.5, value_clip=0.2).value_coefficients(G, values)
    v = torch.tensor(values, requires_grad=True)
    target = torch.tensor(np.float32(returns).astype(float))
    held = v.clamp(-0.2, 0.2)
    terms = 0.5 * torch.maximum((v - target) ** 2, (held - target) ** 2)
    mean = 0.5 * terms[:7].mean()
    mean.backward()
    assert_allclose(loss, mean.item(), rtol=1e-6)
    assert_allclose(dvalues, v.grad.numpy(), rtol=1e-5, atol=1e-8)


def test_lessons_that_lack_something_are_refused(lesson):
    with pytest.raises(ValueError, match=r"no reference log-probabilities were recorded"):
        PPO(kl="k3", kl_coef=0.1).weights(lesson([[1]]))
    with pytest.raises(
        ValueError, match=r"the credit is for 'pairs', but this objective learns fr"
    ):
        PPO().weights(lesson([[1]], use="pairs"))
    with pytest.raises(ValueError, match=r"a value loss needs a credit that records values"):
        PPO(value_coef=1.0).value_coefficients(lesson([[1]]), np.zeros(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kl": "k3"}, "kl is 'k3' with kl_coef 0.0; a KL term needs one of"),
        ({"kl_coef": 0.1}, "kl is None with kl_coef 0.1"),
        ({"kl": "k9", "kl_coef": 0.1}, "kl is 'k9'"),
        ({"entropy_coef": float("nan")}, "entropy_coef is nan; it is a finite number"),
        ({"value_clip": 0.0}, "value_clip 0.0; the first is not negative, the second above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PPO(**settings)
