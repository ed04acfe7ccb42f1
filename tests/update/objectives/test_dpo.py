import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from harness.update.objectives.dpo import DPO

MASKS = [[0, 1, 1], [1], [0, 1, 0, 1], [1, 1]]
SPANS = [(0, 3), (3, 4), (4, 8), (8, 10)]
PAIRS = [[0, 2], [0, 1]]
rng = np.random.default_rng(0)
LOGP, REF = rng.normal(-1, 1, 10), rng.normal(-1, 1, 10)


@pytest.mark.parametrize("reference", ["behaviour", "recorded"])
def test_loss_and_gradient_are_those_of_the_paper(lesson, reference):
    G = lesson(MASKS, use="pairs", pairs=PAIRS, ref_logprobs=REF)
    dlogp, loss = DPO(beta=0.7, reference=reference).coefficients(G, LOGP)
    logp = torch.tensor(LOGP, requires_grad=True)
    name = "logprobs" if reference == "behaviour" else "ref_logprobs"
    gap = (logp - torch.tensor(G.arrays[name], dtype=torch.float64)) * torch.tensor(
        G.arrays["is_action"]
    )
    h = torch.stack([gap[s:e].sum() for s, e in SPANS])
    value = torch.stack(
        [-torch.nn.functional.logsigmoid(0.7 * (h[c] - h[r])) for c, r in PAIRS]
    ).mean()
    (expected,) = torch.autograd.grad(value, logp)
    assert_allclose(loss, value.item(), rtol=1e-12)
    assert_allclose(dlogp, expected.numpy(), rtol=1e-6, atol=1e-9)


def test_before_the_first_step_the_loss_is_log_2(lesson):
    G = lesson(MASKS, use="pairs", pairs=PAIRS)
    dlogp, loss = DPO().coefficients(G, G.arrays["logprobs"])
    assert_allclose(loss, np.log(2), rtol=1e-15)
    assert_allclose(dlogp, [0, -0.05, -0.05, 0.025, 0, 0.025, 0, 0.025, 0, 0], rtol=1e-6)


def test_episodes_in_no_pair_may_skip_the_head(lesson):
    G = lesson(MASKS, use="pairs", pairs=PAIRS)
    mask = DPO().row_mask(G)
    assert mask.tolist() == [False, True, True, True, False, True, False, True, False, False]
    assert_allclose(DPO().weights(G)[[1, 3, 5]], [1, 0.5, 0.5])


def test_no_pair_is_no_loss(lesson):
    G = lesson(MASKS, use="pairs")
    dlogp, loss = DPO().coefficients(G, LOGP)
    assert (loss, dlogp.any(), DPO().row_mask(G).any()) == (0, False, False)


def test_huge_margins_stay_finite(lesson):
    G = lesson([[1], [1]], use="pairs", pairs=[[0, 1]])
    for logp in ([1e5, -1e5], [-1e5, 1e5]):
        dlogp, loss = DPO(beta=1.0).coefficients(G, np.array(logp))
        assert np.isfinite(dlogp).all()
        assert np.isfinite(loss)


def test_lessons_and_settings_that_cannot_be_are_refused(lesson):
    with pytest.raises(ValueError, match="the credit is for 'policy', but dpo learns from pairs"):
        DPO().weights(lesson(MASKS))
    with pytest.raises(ValueError, match="no reference log-probabilities were recorded"):
        DPO(reference="recorded").weights(lesson(MASKS, use="pairs"))
    with pytest.raises(ValueError, match=r"beta is 0.0; it is a finite number above 0"):
        DPO(beta=0.0)
    with pytest.raises(ValueError, match="reference is 'x'; it is one of behaviour, recorded"):
        DPO(reference="x")
    assert DPO().passes == 2
    assert DPO().kernel() is None
