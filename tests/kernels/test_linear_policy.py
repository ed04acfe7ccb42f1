"""The chunked LM head on the CPU: equal to the definition, and what it drops, keeps and refuses."""

from typing import Any

import pytest
import torch
from torch import Tensor

from harness.kernels.linear_policy import (
    Objective,
    Outcome,
    chunks,
    linear_logprobs,
    linear_policy,
    linear_policy_given,
    reference,
)
from harness.kernels.policy_rows import Rows, distribution

TOKENS, VOCABULARY, HIDDEN = 37, 203, 16
KL: dict[str, Any] = {"kl_kind": "k3", "kl_coef": 0.1}
OBJECTIVES = [
    Objective("reinforce"),
    Objective("ppo", clip_high=0.28, dual_clip=3.0),
    Objective("ppo", entropy_coef=0.05, **KL),
    Objective("cispo", clip_low=1.0, clip_high=4.0, kl_kind="k1", kl_coef=0.1),
    Objective("gspo_token", kl_kind="k2", kl_coef=0.1),
    Objective("ce"),
]


def batch(seed: int = 0, **settings: Any) -> tuple[list[Tensor], Tensor, dict[str, Tensor]]:
    """hidden, weight and bias, targets, and what a row brings, all in float64."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    operands = [normal(TOKENS, HIDDEN), 0.7 * normal(VOCABULARY, HIDDEN), normal(VOCABULARY)]
    targets = torch.randint(0, VOCABULARY, (TOKENS,), generator=draw)
    targets[0] = VOCABULARY - 1
    logits = operands[0] @ operands[1].t() + operands[2]
    logp, _ = distribution(logits, targets, **settings)
    weights = torch.rand(TOKENS, generator=draw, dtype=torch.float64)
    weights[3:9] = 0
    advantages = normal(TOKENS)
    advantages[20:25] = 0
    named = {
        "old_logprobs_T": logp + 0.3 * normal(TOKENS),
        "ref_logprobs_T": logp + 0.3 * normal(TOKENS),
        "advantages_T": advantages,
        "weights_T": weights,
        "correction_T": torch.rand(TOKENS, generator=draw, dtype=torch.float64),
        "sequence_log_ratio_T": 0.2 * normal(TOKENS),
    }
    return operands, targets, named


def defined(
    operands: list[Tensor],
    targets: Tensor,
    named: dict[str, Tensor],
    dtype: torch.dtype,
    objective: Objective,
    **settings: Any,
) -> list[Tensor]:
    """loss and its gradients by the definition and autograd."""
    leaves = [x.to(dtype).requires_grad_() for x in operands]
    rows = Rows(targets, **{name: value.to(dtype) for name, value in named.items()})
    loss, _, _ = reference.linear_policy(
        leaves[0], leaves[1], rows, objective=objective, bias=leaves[2], **settings
    )
    return [loss.detach(), *torch.autograd.grad(loss, leaves)]


def chunked(
    operands: list[Tensor],
    targets: Tensor,
    named: dict[str, Tensor],
    dtype: torch.dtype,
    objective: Objective,
    **settings: Any,
) -> list[Tensor]:
    leaves = [x.to(dtype).requires_grad_() for x in operands]
    loss, _ = linear_policy(
        leaves[0], leaves[1], targets, objective=objective, bias=leaves[2], **named, **settings
    )
    return [loss.detach(), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.7, "softcap": 8.0}, {"temperature": 1.3, "truncated": True}],
    ids=["plain", "tempered and capped", "truncated"],
)
def test_loss_and_gradients(
    objective: Objective, dtype: torch.dtype, settings: dict[str, Any], within: Any
) -> None:
    settings = dict(settings)
    truncated = settings.pop("truncated", False)
    operands, targets, named = batch(**settings)
    operands = [x.to(dtype).double() for x in operands]
    if truncated:
        named["threshold_T"] = torch.full((TOKENS,), -5.0, dtype=torch.float64)
    exact = defined(operands, targets, named, torch.float64, objective, **settings)
    native = defined(operands, targets, named, dtype, objective, **settings)
    for chunk_bytes in (None, 7 * VOCABULARY * dtype.itemsize):
        found = chunked(
            operands, targets, named, dtype, objective, chunk_bytes=chunk_bytes, **settings
        )
        for actual, right, own in zip(found, exact, native, strict=True):
            flat = (actual.flatten(), right.flatten(), own.flatten())
            within(*flat, scale=float(right.abs().max()))
    assert all(float(x.abs().max()) > 0 for x in found)


def test_gradients_scale_with_the_upstream_and_are_handed_out_once() -> None:
    operands, targets, named = batch()
    objective = Objective("ppo")
    leaves = [x.clone().requires_grad_() for x in operands]
    loss, _ = linear_policy(
        leaves[0], leaves[1], targets, objective=objective, bias=leaves[2], **named
    )
    expected = chunked(operands, targets, named, torch.float64, objective)[1:]
    (loss.expand(3).sum() * 0.5).backward(retain_graph=True)
    for leaf, right in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, 1.5 * right)
    with pytest.raises(RuntimeError, match="handed out: backward runs once"):
        loss.backward()


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2), ()])
def test_only_what_requires_a_gradient_gets_one(wanted: tuple[int, ...]) -> None:
    operands, targets, named = batch()
    leaves = [x.clone().requires_grad_(index in wanted) for index, x in enumerate(operands)]
    loss, _ = linear_policy(
        leaves[0], leaves[1], targets, objective=Objective("ppo"), bias=leaves[2], **named
    )
    expected = chunked(operands, targets, named, torch.float64, Objective("ppo"))
    torch.testing.assert_close(loss.detach(), expected[0])
    assert loss.requires_grad == bool(wanted)
    if wanted:
        loss.backward()
    for index, leaf in enumerate(leaves):
        assert (leaf.grad is not None) == (index in wanted)
        if leaf.grad is not None:
            torch.testing.assert_close(leaf.grad, expected[index + 1])


def test_tied_weights_add_both_gradients() -> None:
    operands, targets, named = batch()
    embedding = operands[1].clone().requires_grad_()
    hidden = embedding[targets.flip(0)] * 0.5
    loss, _ = linear_policy(hidden, embedding, targets, objective=Objective("ppo"), **named)
    loss.backward()
    other = operands[1].clone().requires_grad_()
    plain, _, _ = reference.linear_policy(
        other[targets.flip(0)] * 0.5, other, Rows(targets, **named), objective=Objective("ppo")
    )
    plain.backward()
    torch.testing.assert_close(embedding.grad, other.grad)


def rows_evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows reach the matrix products, call by call."""
    counts: list[int] = []
    inner = chunks.policy_rows_

    def counting(logits: Tensor, *given: Any, **named: Any) -> Tensor | None:
        counts.append(len(logits))
        return inner(logits, *given, **named)

    monkeypatch.setattr(chunks, "policy_rows_", counting)
    return counts


def test_rows_without_any_term_never_reach_the_matrix_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operands, targets, named = batch()
    counts = rows_evaluated(monkeypatch)
    objectives = (Objective("ppo"), Objective("ppo", **KL), Objective("ppo", entropy_coef=0.1))
    for objective in objectives:
        chunked(operands, targets, named, torch.float64, objective)
    chunked(operands, targets, named, torch.float64, Objective("ppo"), stats=("logp_T",))
    some = torch.arange(TOKENS) < 4
    settings: dict[str, Any] = {"stats": ("logp_T",), "stats_rows_T": some}
    chunked(operands, targets, named, torch.float64, Objective("ppo"), **settings)
    assert counts == [TOKENS - 11, TOKENS - 6, TOKENS - 6, TOKENS - 6, TOKENS - 10]


def test_a_group_of_equal_rewards_still_moves_by_kl_and_entropy() -> None:
    operands, targets, named = batch()
    named.pop("advantages_T")
    episode = torch.arange(TOKENS) % 4
    outcome = Outcome(torch.full((4,), 0.3, dtype=torch.float64), 4)
    zero = {**named, "advantages_T": torch.zeros(TOKENS, dtype=torch.float64)}
    settings: dict[str, Any] = {"outcome": outcome, "episode_T": episode}
    for objective in (Objective("ppo", **KL), Objective("ppo", entropy_coef=0.1)):
        found = chunked(operands, targets, named, torch.float64, objective, **settings)
        exact = defined(operands, targets, zero, torch.float64, objective)
        for left, right in zip(found, exact, strict=True):
            torch.testing.assert_close(left, right)
            assert float(left.abs().max()) > 0
    still = chunked(operands, targets, named, torch.float64, Objective("ppo"), **settings)
    assert all(bool((x == 0).all()) for x in still)


def test_all_rows_dropped_gives_zero_and_gradients_that_exist() -> None:
    operands, targets, named = batch()
    named["weights_T"].zero_()
    for objective in OBJECTIVES:
        found = chunked(operands, targets, named, torch.float64, objective)
        assert [x.shape for x in found[1:]] == [x.shape for x in operands]
        assert all(bool((x == 0).all()) for x in found)


def test_no_rows_at_all() -> None:
    hidden = torch.zeros(0, HIDDEN, requires_grad=True)
    weight = torch.randn(VOCABULARY, HIDDEN, requires_grad=True)
    empty = torch.zeros(0)
    loss, _ = linear_policy(
        hidden, weight, empty.long(), weights_T=empty, objective=Objective("ce")
    )
    loss.backward()
    assert loss == 0
    assert weight.grad is not None
    assert bool((weight.grad == 0).all())


def test_statistics_are_those_asked_for_and_detached() -> None:
    operands, targets, named = batch()
    names = ("loss_T", "logp_T", "entropy_T", "ratio_T", "clipped_T", "kl_T")
    hidden = operands[0].requires_grad_()
    for objective in (Objective("ppo"), Objective("ppo", entropy_coef=0.1, **KL)):
        loss, stats = linear_policy(
            hidden,
            operands[1],
            targets,
            objective=objective,
            bias=operands[2],
            stats=names,
            **named,
        )
        assert set(stats) == set(names)
        assert not any(value.requires_grad for value in stats.values())
        weighed = named["weights_T"] != 0
        logits = operands[0].detach() @ operands[1].t() + operands[2]
        logp, entropy = distribution(logits, targets)
        torch.testing.assert_close(stats["logp_T"][weighed], logp[weighed])
        torch.testing.assert_close(stats["entropy_T"][weighed], entropy[weighed])
        ratio = (logp - named["old_logprobs_T"]).exp()
        torch.testing.assert_close(stats["ratio_T"][weighed], ratio[weighed])
        assert bool((stats["logp_T"][~weighed] == 0).all())
        torch.testing.assert_close(stats["loss_T"].sum(), loss.detach())
    with pytest.raises(ValueError, match=r"\['speed'\] are no statistics"):
        linear_policy(
            hidden, operands[1], targets, objective=Objective("ppo"), stats=("speed",), **named
        )


def test_scores_before_the_first_step_make_every_ratio_one_and_every_kl_zero() -> None:
    operands, targets, named = batch()
    hidden, weight, bias = (x.float() for x in operands)
    threshold = torch.full((TOKENS,), -4.0)
    settings: dict[str, Any] = {"temperature": 0.7, "bias": bias, "threshold_T": threshold}
    scores = linear_logprobs(hidden, weight, targets, **settings)
    assert isinstance(scores, Tensor)
    named |= {"old_logprobs_T": scores, "ref_logprobs_T": scores}
    _, stats = linear_policy(
        hidden,
        weight,
        targets,
        objective=Objective("ppo", **KL),
        stats=("ratio_T", "kl_T", "clipped_T"),
        stats_rows_T=torch.ones(TOKENS, dtype=torch.bool),
        **settings,
        **named,
    )
    torch.testing.assert_close(stats["ratio_T"], torch.ones(TOKENS), rtol=1e-6, atol=1e-6)
    assert float(stats["kl_T"].abs().max()) < 1e-6
    assert float(stats["clipped_T"].sum()) == 0


def test_a_second_pass_with_given_derivatives_is_the_sequence_loss() -> None:
    operands, targets, named = batch()
    old, advantage = named["old_logprobs_T"], 0.7
    leaves = [x.clone().requires_grad_() for x in operands]
    logits = leaves[0] @ leaves[1].t() + leaves[2]
    logp, _ = distribution(logits, targets)
    ratio = (logp - old).mean().exp()
    torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.5, 1.5)).backward()
    scored = linear_logprobs(operands[0], operands[1], targets, bias=operands[2])
    assert isinstance(scored, Tensor)
    given = (-advantage * (scored - old).mean().exp() / TOKENS).expand(TOKENS)
    others = [x.clone().requires_grad_() for x in operands]
    loss, stats = linear_policy_given(others[0], others[1], targets, dlogp_T=given, bias=others[2])
    loss.backward()
    for left, right in zip(others, leaves, strict=True):
        assert right.grad is not None
        assert float(right.grad.abs().max()) > 0
        torch.testing.assert_close(left.grad, right.grad)
    torch.testing.assert_close(stats["logp_T"], scored)


def test_autocast_takes_its_dtype_and_keeps_the_sums_of_the_weights_in_float32() -> None:
    operands, targets, named = batch()
    rounded = [x.bfloat16() for x in operands]
    exact = defined([x.double() for x in rounded], targets, named, torch.float64, Objective("ppo"))
    leaves = [x.float().requires_grad_() for x in operands]
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = linear_policy(
            leaves[0].bfloat16(),
            leaves[1],
            targets,
            objective=Objective("ppo"),
            bias=leaves[2],
            **named,
        )
    loss.backward()
    assert leaves[1].grad is not None
    assert leaves[1].grad.dtype == torch.float32
    size = exact[2].abs().max()
    assert float((leaves[1].grad.double() - exact[2]).abs().max() / size) < 0.03


def test_what_cannot_be_is_refused() -> None:
    operands, targets, named = batch()
    ppo = Objective("ppo")
    with pytest.raises(ValueError, match="temperature is positive here, not 0"):
        linear_policy(*operands[:2], targets, objective=ppo, temperature=0.0, **named)
    with pytest.raises(ValueError, match="softcap is positive or None, not -1"):
        linear_policy(*operands[:2], targets, objective=ppo, softcap=-1.0, **named)
    with pytest.raises(ValueError, match=r"torch.float64 and weights torch.float32: they differ"):
        linear_policy(operands[0], operands[1].float(), targets, objective=ppo, **named)
    with pytest.raises(ValueError, match="needs old_logprobs_T"):
        linear_policy(
            *operands[:2],
            targets,
            objective=ppo,
            weights_T=named["weights_T"],
            advantages_T=targets,
        )
    with pytest.raises(ValueError, match=r"weights \(V, H\), not \(37, 16\) and \(16, 203\)"):
        linear_policy(operands[0], operands[1].t(), targets, objective=ppo, **named)
