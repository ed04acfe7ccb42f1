"""Credit of packed trajectories and the objective over it: the definition, and the CPU path.

Axes: T tokens of all trajectories, one after the other; B trajectories. m_t = 1 on actions. On
other tokens (prompts, observations) the recursions pass through: their rewards and values are not
read. t⁺ is the next action of the same trajectory, V(t⁺) the bootstrap value b after the last one,
and γ_t = γ·discount_t (a per-token discount ends a recursion with 0, or holds it within a turn with
1).

    returns   G_t = r_t + γ_t·G(t⁺)              G after the last = b       A_t = G_t − V_t
    gae       δ_t = r_t + γ_t·V(t⁺) − V_t        A_t = δ_t + γ_t·λ·A(t⁺)    G_t = A_t + V_t
    vtrace    y_t = ρ̄_t·δ_t + γ_t·λ·c̄_t·y(t⁺)   G_t = V_t + y_t
              A_t = ρ̄_t·(r_t + γ_t·G(t⁺) − V_t)  ρ̄ = min(ρ_clip, ρ), c̄ = min(c_clip, ρ)
    outcome   A_t = advantage of the trajectory in its group (`Outcome`), G_t = A_t

V = 0 where no values are given. All four are y_t = b_t + a_t·y_{t+1}, with a = 1, b = 0 off
actions. The objective of a token is that of `policy_rows.reference`, weighted; gspo_token's
sequence log-ratio is the mean of logπ − logπ_old over a trajectory's actions.

Source: gae: Schulman et al., arXiv 1506.02438; vtrace: Espeholt et al., arXiv 1802.01561.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.linalg.blas import dtbsv
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..policy_rows import Objective, Outcome, Rows, token_loss
from ..policy_rows.reference import CLAMP

SUMS = ("loss", "kl", "clipped", "ratio", "actions")
"""Sums over a trajectory's actions, in the order of the sums' first axis; the loss is weighted."""


@dataclasses.dataclass(frozen=True)
class Credit:
    """Which recursion, and its constants."""

    kind: Literal["returns", "gae", "vtrace", "outcome"] = "gae"
    gamma: float = 1.0
    lam: float = 1.0
    rho_clip: float = 1.0
    c_clip: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("returns", "gae", "vtrace", "outcome"):
            raise ValueError(f"{self.kind!r} is no recursion of credit")
        if not 0 <= self.gamma <= 1 or not 0 <= self.lam <= 1:
            raise ValueError(f"gamma and lam lie in [0, 1], not {self.gamma}, {self.lam}")


@dataclasses.dataclass(frozen=True)
class Packed:
    """Trajectories one after the other. Absent is None."""

    offsets_B1: Tensor
    """Start of each trajectory, and the end of the last: int64."""
    mask_T: Tensor
    """True on actions."""
    rewards_T: Tensor | None = None
    values_T: Tensor | None = None
    bootstrap_B: Tensor | None = None
    """Value of the state after the last action of a trajectory that was cut off, else 0."""
    discount_T: Tensor | None = None
    logp_T: Tensor | None = None
    old_logprobs_T: Tensor | None = None
    ref_logprobs_T: Tensor | None = None
    correction_T: Tensor | None = None
    weights_T: Tensor | None = None
    outcome: Outcome | None = None


class Evaluation(NamedTuple):
    """What comes of it. Without an objective the last three are None."""

    advantages_T: Tensor
    returns_T: Tensor
    loss: Tensor | None
    """Σ over all tokens, differentiable by `logp_T`."""
    dlogp_T: Tensor | None
    sums_KB: Tensor | None


def check(packed: Packed, credit: Credit, objective: Objective | None) -> None:
    """Refuse trajectories that lack what the recursion or the objective reads."""
    tokens, episodes = packed.mask_T.shape[0], packed.offsets_B1.shape[0] - 1
    for name in ("rewards", "values", "discount", "logp", "old_logprobs", "ref_logprobs"):
        value = getattr(packed, f"{name}_T")
        if value is not None and value.shape != (tokens,):
            raise ValueError(f"{name}_T has one entry a token, ({tokens},), not {value.shape}")
    if packed.bootstrap_B is not None and packed.bootstrap_B.shape != (episodes,):
        raise ValueError(f"bootstrap_B is ({episodes},), not {tuple(packed.bootstrap_B.shape)}")
    if (credit.kind == "outcome") != (packed.outcome is not None):
        raise ValueError("an outcome is given for the kind 'outcome', and for no other")
    if packed.outcome is not None and packed.outcome.rewards_B.shape != (episodes,):
        raise ValueError(f"{episodes} trajectories have {episodes} rewards")
    needed = {"rewards_T": credit.kind != "outcome", "values_T": credit.kind in ("gae", "vtrace")}
    pair = credit.kind == "vtrace" or (
        objective is not None and objective.kind in ("ppo", "cispo", "gspo_token")
    )
    needed |= {"logp_T": pair or objective is not None, "old_logprobs_T": pair}
    needed["weights_T"] = objective is not None
    needed["ref_logprobs_T"] = objective is not None and objective.kl_coef != 0
    missing = [name for name, need in needed.items() if need and getattr(packed, name) is None]
    if missing:
        raise ValueError(f"credit {credit.kind!r} and objective need {', '.join(missing)}")
    if objective is not None and objective.entropy_coef != 0:
        raise ValueError("an entropy bonus needs the whole distribution: see policy_rows")


def reverse_scan(a_T: Tensor, b_T: Tensor) -> Tensor:
    """y_t = b_t + a_t·y_{t+1}, y after the last = 0, in float64 and in the order of time.

    That is the triangular system of two diagonals (1, −a)·y = b, which BLAS solves from its end.
    """
    length = a_T.shape[0]
    if length == 0:
        return b_T.clone()
    # column t holds the entry above the diagonal, then the diagonal, which is not read
    band = np.zeros((length, 2))
    np.negative(a_T[:-1].numpy(), out=band[1:, 0])
    y = dtbsv(1, band.T, b_T.double().numpy(), diag=1)
    return torch.from_numpy(y).to(b_T.dtype)


def _spread(value_B: Tensor, packed: Packed) -> Tensor:
    """A trajectory's value on each of its tokens."""
    return torch.from_numpy(np.repeat(value_B.numpy(), packed.offsets_B1.diff().numpy()))


def recursion(packed: Packed, credit: Credit) -> tuple[Tensor, Tensor]:
    """advantages_T and returns_T of the recursion, 0 off actions."""
    assert packed.rewards_T is not None
    # actions alone, so that the next one is the next entry
    action = np.flatnonzero(packed.mask_T.numpy())
    action_A = torch.from_numpy(action)
    bounds_B1 = torch.from_numpy(np.searchsorted(action, packed.offsets_B1.numpy()))
    acting_B = bounds_B1.diff() > 0
    last_L = bounds_B1[1:][acting_B] - 1

    def taken(value_T: Tensor) -> Tensor:
        return value_T.detach().index_select(0, action_A)

    def following(value_A: Tensor, after_L: Tensor | float) -> Tensor:
        """The entry of the next action, and `after` at the last of a trajectory."""
        next_A = value_A.roll(-1)
        next_A[last_L] = after_L
        return next_A

    reward_A = taken(packed.rewards_T)
    value_A = torch.zeros_like(reward_A) if packed.values_T is None else taken(packed.values_T)
    after_L: Tensor | float = 0.0
    if packed.bootstrap_B is not None:
        after_L = packed.bootstrap_B[acting_B]
    gamma_A = torch.full_like(reward_A, credit.gamma)
    if packed.discount_T is not None:
        gamma_A.mul_(taken(packed.discount_T))

    if credit.kind == "returns":
        reward_A[last_L] += gamma_A[last_L] * after_L
        gamma_A[last_L] = 0.0
        returns_A = reverse_scan(gamma_A, reward_A)
        advantages_A = returns_A - value_A
    else:
        delta_A = torch.addcmul(reward_A, gamma_A, following(value_A, after_L)).sub_(value_A)
        trace_A = gamma_A * credit.lam
        trace_A[last_L] = 0.0
        if credit.kind == "gae":
            advantages_A = reverse_scan(trace_A, delta_A)
            returns_A = advantages_A + value_A
        else:
            assert packed.logp_T is not None
            assert packed.old_logprobs_T is not None
            gap_A = taken(packed.logp_T) - taken(packed.old_logprobs_T)
            ratio_A = gap_A.clamp_(-CLAMP, CLAMP).exp_()
            rho_A = ratio_A.clamp(max=credit.rho_clip)
            trace_A.mul_(ratio_A.clamp(max=credit.c_clip))
            y_A = reverse_scan(trace_A, rho_A * delta_A)
            returns_A = value_A + y_A
            advantages_A = rho_A * (delta_A + gamma_A * following(y_A, 0.0))

    def placed(value_A: Tensor) -> Tensor:
        return value_A.new_zeros(packed.mask_T.shape).index_copy_(0, action_A, value_A)

    return placed(advantages_A), placed(returns_A)


def _sum(value_T: Tensor, episode_T: Tensor, episodes: int) -> Tensor:
    """Σ of a trajectory's tokens, one after the other."""
    return value_T.new_zeros(episodes).index_add_(0, episode_T, value_T)


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logp_T: Tensor, dlogp_T: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(dlogp_T)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (dlogp_T,) = ctx.saved_tensors
        return upstream * dlogp_T, None, None


def known_loss(logp_T: Tensor, dlogp_T: Tensor, sums_KB: Tensor) -> Tensor:
    """Σ loss as a function of logp_T whose derivative is known already."""
    value = sums_KB[0].sum()
    loss: Tensor = _Known.apply(logp_T, dlogp_T, value)
    return loss


def credit_objective(
    packed: Packed, credit: Credit, objective: Objective | None = None
) -> Evaluation:
    """Advantages and returns of every token, 0 off actions; with an objective also its loss.

    The loss is differentiable by `packed.logp_T`, dlogp_T is that derivative, and sums_KB are the
    sums of SUMS by trajectory, detached.
    """
    check(packed, credit, objective)
    episodes = packed.offsets_B1.shape[0] - 1
    if packed.outcome is not None:
        advantages_T = _spread(packed.outcome.advantages(), packed).mul_(packed.mask_T)
        returns_T = advantages_T
    else:
        advantages_T, returns_T = recursion(packed, credit)
    if objective is None:
        return Evaluation(advantages_T, returns_T, None, None, None)
    assert packed.logp_T is not None
    assert packed.weights_T is not None
    episode_T = _spread(torch.arange(episodes), packed)
    mask_T = packed.mask_T.to(packed.logp_T.dtype)
    actions_B = _sum(mask_T, episode_T, episodes)
    rows = Rows(
        targets_T=episode_T,
        weights_T=packed.weights_T * mask_T,
        old_logprobs_T=packed.old_logprobs_T,
        advantages_T=advantages_T,
        ref_logprobs_T=packed.ref_logprobs_T,
        correction_T=packed.correction_T,
    )
    if objective.kind == "gspo_token":
        assert packed.old_logprobs_T is not None
        gap_T = torch.where(packed.mask_T, packed.logp_T.detach() - packed.old_logprobs_T, 0.0)
        mean_B = _sum(gap_T, episode_T, episodes) / actions_B.clamp(min=1)
        rows = dataclasses.replace(rows, sequence_log_ratio_T=mean_B[episode_T])
    with torch.enable_grad():
        leaf_T = packed.logp_T.detach().requires_grad_()
        terms = token_loss(leaf_T, None, rows, objective)
        (dlogp_T,) = torch.autograd.grad(terms.loss.sum(), leaf_T)
    parts = (terms.loss.detach(), terms.kl, terms.clipped, terms.ratio)
    held = [torch.where(packed.mask_T, part_T, 0.0) for part_T in parts]
    sums_KB = torch.stack([*(_sum(part_T, episode_T, episodes) for part_T in held), actions_B])
    loss = known_loss(packed.logp_T, dlogp_T, sums_KB)
    return Evaluation(advantages_T, returns_T, loss, dlogp_T, sums_KB)
