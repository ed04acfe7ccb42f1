import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from harness.update.objectives.gspo import GSPO

MASKS = [[0, 1, 1, 0, 1], [0, 0, 1], [0, 1, 1, 1]]
SPANS = [(0, 5), (5, 8), (8, 12)]
A = np.repeat([1.5, -1.0, -0.5], [5, 3, 4])
rng = np.random.default_rng(0)
LOGP = rng.normal(-1, 0.3, 12)
BOUNDS = {"clip_low": 0.2, "clip_high": 0.2}


def definition(lesson, sequence, credit=A, bounds=(0.8, 1.2)):
    """Loss and gradient of the paper's two forms by autograd, mean over sequences."""
    logp = torch.tensor(LOGP, requires_grad=True)
    terms = []
    for start, end in SPANS:
        at = [t for t in range(start, end) if lesson.arrays["is_action"][t]]
        s = (logp[at] + 1).mean().exp()
        ratio = s if sequence else s.detach() * (logp[at] - logp[at].detach()).exp()
        a = torch.tensor(credit[at]).mean() if sequence else torch.tensor(credit[at])
        terms.append(-torch.minimum(a * ratio, a * ratio.clamp(*bounds)).mean())
    loss = torch.stack(terms).mean()
    return torch.autograd.grad(loss, logp)[0].numpy(), loss.item()


def test_the_ratio_of_a_sequence_is_its_geometric_mean(lesson):
    G = lesson([[1, 1, 1]], [1.0] * 3)
    logp = np.array([0.1, -0.2, 0.4]) - 1
    for form in ("token", "sequence"):
        _, loss = GSPO(form=form).coefficients(G, logp)
        assert_allclose(loss, -min(1.1051709180756477, 1 + 4e-4), rtol=1e-7)
        _, loss = GSPO(form=form, **BOUNDS).coefficients(G, logp)
        assert_allclose(loss, -1.1051709180756477, rtol=1e-7)


@pytest.mark.parametrize("form", ["token", "sequence"])
def test_loss_and_gradient_are_those_of_the_paper(lesson, form):
    G = lesson(MASKS, A)
    dlogp, loss = GSPO(form=form, **BOUNDS).coefficients(G, LOGP)
    expected, value = definition(G, form == "sequence")
    assert np.abs(expected).max() > 0.05
    assert_allclose(dlogp, expected, rtol=1e-6, atol=1e-9)
    assert_allclose(loss, value, rtol=1e-6)


def test_both_forms_have_one_gradient_where_credit_is_constant(lesson):
    G = lesson(MASKS, A)
    token, _ = GSPO(form="token", **BOUNDS).coefficients(G, LOGP)
    sequence, _ = GSPO(form="sequence", **BOUNDS).coefficients(G, LOGP)
    assert_allclose(token, sequence, rtol=1e-6, atol=1e-9)


def test_credit_within_a_sequence_is_the_token_forms(lesson):
    credit = rng.normal(0, 1, 12)
    G = lesson(MASKS, credit)
    dlogp, loss = GSPO(**BOUNDS).coefficients(G, LOGP)
    expected, value = definition(G, sequence=False, credit=credit)
    assert_allclose(dlogp, expected, rtol=1e-5, atol=1e-8)
    assert_allclose(loss, value, rtol=1e-5)


@pytest.mark.parametrize("form", ["token", "sequence"])
def test_a_kl_term_is_added_token_by_token(lesson, form):
    G = lesson(MASKS, A, ref_logprobs=[-2.0] * 12)
    plain, loss = GSPO(form=form, **BOUNDS).coefficients(G, LOGP)
    with_kl, more = GSPO(form=form, kl="k2", kl_coef=0.1, **BOUNDS).coefficients(G, LOGP)
    w_T = GSPO().weights(G)
    assert_allclose(with_kl - plain, 0.1 * w_T * (LOGP + 2), rtol=1e-4, atol=1e-8)
    assert_allclose(more - loss, (0.1 * w_T * (LOGP + 2) ** 2 / 2).sum(), rtol=1e-6)


@pytest.mark.parametrize("form", ["token", "sequence"])
def test_unscorable_and_empty_episodes_take_no_part(lesson, form):
    G = lesson([[1, 1], [0, 0], [1]], [1, 1, 0, 0, 0], unscorable=[2])
    dlogp, loss = GSPO(form=form).coefficients(G, np.array([-1, -1, 0, 0, np.nan]))
    assert_allclose(dlogp, [-0.5, -0.5, 0, 0, 0])
    assert_allclose(loss, -1)


def test_settings_that_cannot_be_are_refused():
    assert GSPO().passes == 2
    with pytest.raises(ValueError, match="form is 'x'; it is one of token, sequence"):
        GSPO(form="x")
    with pytest.raises(ValueError, match="correction is 'mask', which weighs tokens, but form"):
        GSPO(form="sequence", correction="mask")
