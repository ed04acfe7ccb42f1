"""The trajectory kernel against its definition in float64."""

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.kernels.credit_objective import Credit, Packed, fused, reference
from harness.kernels.policy_rows import Objective, Outcome

LENGTHS = [5, 0, 1, 70, 33, 203]
OBJECTIVES = [
    None,
    Objective("reinforce", kl_kind="k1", kl_coef=0.1),
    Objective("ppo", dual_clip=3.0, kl_kind="k2", kl_coef=0.1),
    Objective("cispo", kl_kind="k3", kl_coef=0.1),
    Objective("gspo_token"),
    Objective("ce"),
]


def packed(lengths: list[int] = LENGTHS, seed: int = 0) -> Packed:
    draw = torch.Generator().manual_seed(seed)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    tokens, episodes = sum(lengths), len(lengths)

    def normal() -> Tensor:
        return torch.randn(tokens, generator=draw)

    mask = torch.rand(tokens, generator=draw) < 0.6
    # a trajectory that ends on observations, and one without any action
    mask[60:76] = False
    mask[76:109] = False
    logp = -normal().abs() - 0.5
    return Packed(
        offsets,
        mask,
        rewards_T=normal(),
        values_T=normal(),
        bootstrap_B=torch.randn(episodes, generator=draw),
        discount_T=torch.rand(tokens, generator=draw).round(decimals=1),
        logp_T=logp,
        old_logprobs_T=logp + 0.3 * normal(),
        ref_logprobs_T=logp + 0.3 * normal(),
        correction_T=torch.rand(tokens, generator=draw),
        weights_T=torch.rand(tokens, generator=draw),
    )


def double(given: Packed) -> Packed:
    named: dict[str, Any] = {
        field.name: value.double()
        for field in dataclasses.fields(given)
        if isinstance(value := getattr(given, field.name), Tensor) and value.is_floating_point()
    }
    if given.outcome is not None:
        rewards = given.outcome.rewards_B.double()
        named["outcome"] = dataclasses.replace(given.outcome, rewards_B=rewards)
    return dataclasses.replace(given, **named)


@pytest.mark.parametrize("kind", ["returns", "gae", "vtrace", "outcome"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_credit_loss_and_gradient(kind: Any, objective: Objective | None, within: Any) -> None:
    given = packed()
    if kind == "outcome":
        rewards = torch.tensor([1.0, 0.0, float("nan"), 2.0, 2.0, 2.5])
        given = dataclasses.replace(given, outcome=Outcome(rewards, 3))
    credit = Credit(kind, gamma=0.97, lam=0.9, c_clip=0.95)
    exact = reference.credit_objective(double(given), credit, objective)
    native = reference.credit_objective(given, credit, objective)
    found = fused.credit_objective(given, credit, objective)
    for actual, right, own in zip(found, exact, native, strict=True):
        if right is not None:
            within(actual, right, own, scale=4.0)
    assert float(found.advantages_T.abs().max()) > 0.1
    # off actions, and in the trajectory of none, there is nothing
    assert bool((found.advantages_T[~given.mask_T] == 0).all())
    assert bool((found.returns_T[~given.mask_T] == 0).all())


def test_two_trajectories_packed_are_two_apart_bit_for_bit() -> None:
    given, credit, objective = packed(), Credit("gae", 0.97, 0.9), Objective("ppo")
    whole = fused.credit_objective(given, credit, objective)
    offsets = given.offsets_B1.tolist()
    assert whole.sums_KB is not None
    for episode, (start, end) in enumerate(pairwise(offsets)):
        named = {
            field.name: getattr(given, field.name)[start:end]
            for field in dataclasses.fields(given)
            if field.name.endswith("_T")
        }
        assert given.bootstrap_B is not None
        alone = Packed(
            torch.tensor([0, end - start]),
            named.pop("mask_T"),
            bootstrap_B=given.bootstrap_B[episode : episode + 1],
            **named,
        )
        part = fused.credit_objective(alone, credit, objective)
        assert torch.equal(part.advantages_T, whole.advantages_T[start:end])
        assert torch.equal(part.returns_T, whole.returns_T[start:end])
        assert part.sums_KB is not None
        assert torch.equal(part.sums_KB[:, 0], whole.sums_KB[:, episode])


def test_gradients_reach_the_log_probabilities_scaled_and_expanded() -> None:
    given = packed()
    assert given.logp_T is not None
    leaf = given.logp_T.clone().requires_grad_()
    found = fused.credit_objective(
        dataclasses.replace(given, logp_T=leaf), Credit("gae"), Objective("ppo")
    )
    assert found.loss is not None
    assert found.dlogp_T is not None
    (gradient,) = torch.autograd.grad(3 * found.loss.expand(2).sum(), leaf)
    torch.testing.assert_close(gradient, 6 * found.dlogp_T)
    assert float(gradient.abs().max()) > 0


def test_no_trajectories_and_no_actions() -> None:
    given = packed()
    none = dataclasses.replace(given, mask_T=torch.zeros_like(given.mask_T))
    found = fused.credit_objective(none, Credit("gae"), Objective("ppo"))
    assert found.loss == 0
    assert found.dlogp_T is not None
    assert bool((found.dlogp_T == 0).all())
    empty = packed([])
    assert fused.credit_objective(empty, Credit("returns"), Objective("ce")).loss == 0


def test_a_long_trajectory(within: Any) -> None:
    given, credit = packed([5000]), Credit("gae", 1.0, 0.95)
    given = dataclasses.replace(given, discount_T=None)
    exact = reference.credit_objective(double(given), credit)
    native = reference.credit_objective(given, credit)
    found = fused.credit_objective(given, credit)
    within(found.advantages_T, exact.advantages_T, native.advantages_T, scale=8.0)


class Far:
    """The kernel, launched where neither tokens nor sums have addresses of 32 bits."""

    def __init__(self, memory_T: Tensor) -> None:
        self.kernel = fused.credit_objective_kernel
        self.memory_T = memory_T

    def __getitem__(self, grid: tuple[int]) -> Any:
        def launch(offsets: Tensor, *values: Any, **named: Any) -> None:
            tokens, moved, pairs = int(offsets[-1]), list(values), []
            first = (1 << 31) - tokens // 2
            for index, value in enumerate(values):
                if not isinstance(value, Tensor):
                    continue
                if value.shape == (tokens,):
                    moved[index] = self.memory_T.view(value.dtype)[4096 * (1 + index) :]
                    pairs.append((value, moved[index][first : first + tokens]))
                elif value.ndim == 2:
                    stride = (1 << 31) // (len(reference.SUMS) - 1) + 16
                    moved[index] = self.memory_T.as_strided(value.shape, (stride, 1))
                    moved[index + 1] = stride
                    pairs.append((value, moved[index]))
            for near, far in pairs:
                far.copy_(near)
            self.kernel[grid](offsets + first, *moved, **named)
            for near, far in pairs:
                near.copy_(far)

        return launch


@pytest.mark.parametrize("kind", ["returns", "gae", "vtrace", "outcome"])
def test_addresses_beyond_32_bits(
    kind: Any, far_T: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, credit = packed(), Credit(kind, 0.97, 0.9)
    if kind == "outcome":
        given = dataclasses.replace(given, outcome=Outcome(torch.arange(6.0), 3))
    objective = Objective("gspo_token" if kind == "gae" else "ppo", kl_kind="k3", kl_coef=0.1)
    near = fused.credit_objective(given, credit, objective)
    monkeypatch.setattr(fused, "credit_objective_kernel", Far(far_T))
    far = fused.credit_objective(given, credit, objective)
    for actual, right in zip(far, near, strict=True):
        assert torch.equal(actual, right)
    # what was found was written there
    assert bool((far_T[(1 << 31) + 16 :] != 0).any())
