"""The loss of one row of logits: the definition, in plain torch with autograd, in any float dtype.

Axes: T rows (tokens that are predicted), V vocabulary, B episodes. For a row with raw logits z,
target y and weight w (all normalisers of the batch are already inside w):

    x = softcap·tanh(z/softcap)/τ          (x = z/τ without a soft cap)
    kept = {v : x_v − max x ≥ threshold} ∪ {y}
    p = softmax of x over kept             logπ = log p_y             H = −Σ p log p
    δ = logπ − logπ_old                    ρ = exp(clamp(δ, ±20))
    loss = w·(c·L + kl_coef·K − entropy_coef·H)          c: rollout correction, 1 if absent

    reinforce   L = −A·logπ
    ppo         L = max(−A·ρ, −A·clip(ρ, 1−low, 1+high)); for A < 0 at most −A·dual_clip
    cispo       L = −sg(clip(ρ, 1−low, 1+high))·A·logπ
    gspo_token  L as ppo, with ρ = sg(s)·π/sg(π), s = exp(clamp(sequence log-ratio, ±20))
    ce          L = −logπ
    k1  K = d      k2  K = d²/2      k3  K = exp(−clamp(d, ±20)) − 1 + d,     d = logπ − logπ_ref

Where a clamp holds, the gradient through it is zero, as the value says.

Source: ppo: Schulman et al., arXiv 1707.06347; separate bounds: Yu et al., arXiv 2503.14476; dual
clip: Ye et al., arXiv 1912.09729; cispo: MiniMax, arXiv 2506.13585; gspo: Zheng et al., arXiv
2507.18071; k1, k2, k3: Schulman, Approximating KL divergence (2020).
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .outcome import Outcome

CLAMP = 20.0
"""Largest log-ratio that is exponentiated."""


@dataclasses.dataclass(frozen=True)
class Objective:
    """Which loss a row has: see the equations at the top of this file."""

    kind: Literal["reinforce", "ppo", "cispo", "gspo_token", "ce"] = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    kl_kind: Literal["k1", "k2", "k3"] | None = None
    kl_coef: float = 0.0
    entropy_coef: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("reinforce", "ppo", "cispo", "gspo_token", "ce"):
            raise ValueError(f"{self.kind!r} is no objective")
        if self.kl_kind not in (None, "k1", "k2", "k3"):
            raise ValueError(f"{self.kl_kind!r} is no estimator of KL: k1, k2 or k3 is")
        if self.clip_low < 0 or self.clip_high < 0:
            raise ValueError(
                "clip bounds are distances from 1, so that 1 lies between them: not "
                f"{self.clip_low}, {self.clip_high}"
            )
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            raise ValueError(f"dual_clip exceeds 1 + clip_high, {self.dual_clip} does not")
        if self.kl_coef != 0 and self.kl_kind is None:
            raise ValueError(f"kl_coef {self.kl_coef} needs kl_kind: k1, k2 or k3")
        if not all(map(math.isfinite, (self.kl_coef, self.entropy_coef))):
            raise ValueError(f"coefficients are finite, not {self.kl_coef}, {self.entropy_coef}")


@dataclasses.dataclass(frozen=True)
class Rows:
    """What rows bring besides their logits, one entry a row. Absent is None."""

    targets_T: Tensor
    weights_T: Tensor | None = None
    old_logprobs_T: Tensor | None = None
    advantages_T: Tensor | None = None
    ref_logprobs_T: Tensor | None = None
    correction_T: Tensor | None = None
    sequence_log_ratio_T: Tensor | None = None
    threshold_T: Tensor | None = None
    dlogp_T: Tensor | None = None
    """Given derivative of the loss by logπ: then no objective is evaluated."""
    dentropy_T: Tensor | None = None
    """Given derivative of the loss by H."""
    episode_T: Tensor | None = None
    """Index of the row's episode, where `outcome` stands in for advantages."""
    outcome: Outcome | None = None

    def __getitem__(self, rows: slice | Tensor) -> "Rows":
        """The same rows' entries, by a slice or by indices."""
        taken: dict[str, Any] = {
            field.name: value[rows]
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return dataclasses.replace(self, **taken)

    def advantages(self) -> Tensor | None:
        """advantages_T, from the rewards of the episodes where those stand in for them."""
        if self.outcome is None:
            return self.advantages_T
        if self.episode_T is None or self.advantages_T is not None:
            raise ValueError("an outcome needs episode_T, and takes the place of advantages_T")
        return self.outcome.advantages()[self.episode_T]

    def check(self, objective: Objective | None) -> None:
        """Refuse rows that lack what the objective reads."""
        if objective is None:
            return
        needed = {"weights_T": True, "old_logprobs_T": objective.kind in ("ppo", "cispo")}
        needed["advantages_T"] = objective.kind != "ce" and self.outcome is None
        needed["sequence_log_ratio_T"] = objective.kind == "gspo_token"
        needed["ref_logprobs_T"] = objective.kl_coef != 0
        missing = [name for name, need in needed.items() if need and getattr(self, name) is None]
        if missing:
            raise ValueError(f"the objective {objective.kind!r} needs {', '.join(missing)}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor) and value.shape != self.targets_T.shape:
                raise ValueError(
                    f"{field.name} has one entry a row, {tuple(self.targets_T.shape)}, "
                    f"not {tuple(value.shape)}"
                )


class Terms(NamedTuple):
    """Per row: the weighted loss, and what is reported of it."""

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    """1.0 where a bound cut the gradient (ppo, gspo_token) or the weight (cispo)."""
    kl: Tensor
    """Of `kl_kind`, k3 if none is named; 0 without reference log-probabilities."""


def distribution(
    logits_TV: Tensor,
    targets_T: Tensor,
    *,
    temperature: float = 1.0,
    softcap: float | None = None,
    threshold_T: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """logp_T and entropy_T of the tempered, truncated distribution, differentiable."""
    x_TV = logits_TV if softcap is None else softcap * torch.tanh(logits_TV / softcap)
    x_TV = x_TV / temperature
    if threshold_T is not None:
        gap_TV = x_TV.detach() - x_TV.detach().amax(1, keepdim=True)
        dropped_TV = (gap_TV < threshold_T[:, None]).scatter(1, targets_T[:, None], False)
        x_TV = x_TV.masked_fill(dropped_TV, -torch.inf)
    logp_TV = x_TV.log_softmax(1)
    logp_T = logp_TV.gather(1, targets_T[:, None])[:, 0]
    # an entry without mass adds nothing, though its logarithm is −∞
    finite_TV = logp_TV.masked_fill(logp_TV == -torch.inf, 0.0)
    return logp_T, -(logp_TV.exp() * finite_TV).sum(1)


def token_loss(logp_T: Tensor, entropy_T: Tensor | None, rows: Rows, objective: Objective) -> Terms:
    """The loss of rows whose log-probability and entropy are known, differentiable by both."""
    advantage_T, zero_T = rows.advantages(), torch.zeros_like(logp_T)
    delta_T = logp_T - rows.old_logprobs_T if rows.old_logprobs_T is not None else zero_T
    if objective.kind == "gspo_token":
        assert rows.sequence_log_ratio_T is not None
        delta_T = rows.sequence_log_ratio_T + logp_T - logp_T.detach()
    ratio_T = delta_T.clamp(-CLAMP, CLAMP).exp()
    bounded_T = ratio_T.clamp(1 - objective.clip_low, 1 + objective.clip_high)
    clipped_T = torch.zeros_like(logp_T, dtype=torch.bool)
    if objective.kind == "ce":
        loss_T = -logp_T
    else:
        assert advantage_T is not None
        if objective.kind == "reinforce":
            loss_T = -advantage_T * logp_T
        elif objective.kind == "cispo":
            loss_T = -bounded_T.detach() * advantage_T * logp_T
            clipped_T = bounded_T != ratio_T
        else:
            free_T, held_T = -advantage_T * ratio_T, -advantage_T * bounded_T
            loss_T = torch.maximum(free_T, held_T)
            clipped_T = held_T > free_T
            if objective.dual_clip is not None:
                cap_T = -advantage_T * objective.dual_clip
                capped_T = (advantage_T < 0) & (loss_T > cap_T)
                loss_T, clipped_T = torch.where(capped_T, cap_T, loss_T), clipped_T | capped_T
    if rows.correction_T is not None:
        loss_T = rows.correction_T * loss_T
    kl_T = zero_T
    if rows.ref_logprobs_T is not None:
        gap_T = logp_T - rows.ref_logprobs_T
        if objective.kl_kind == "k1":
            kl_T = gap_T
        elif objective.kl_kind == "k2":
            kl_T = gap_T.square() / 2
        else:
            kl_T = torch.expm1(-gap_T.clamp(-CLAMP, CLAMP)) + gap_T
        if objective.kl_coef != 0:
            loss_T = loss_T + objective.kl_coef * kl_T
    if objective.entropy_coef != 0:
        assert entropy_T is not None
        loss_T = loss_T - objective.entropy_coef * entropy_T
    if rows.weights_T is not None:
        # a row of no weight has no loss, whatever its other entries say
        loss_T = torch.where(rows.weights_T == 0, 0.0, rows.weights_T * loss_T)
    return Terms(loss_T, ratio_T.detach(), clipped_T.to(logp_T.dtype), kl_T.detach())


def policy_rows(
    logits_TV: Tensor,
    rows: Rows,
    *,
    objective: Objective | None,
    temperature: float = 1.0,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """loss_T, logp_T, entropy_T of materialised logits, differentiable: the whole definition.

    Without an objective the loss is the linear one, dlogp·logπ + dentropy·H, with what is given.
    """
    rows.check(objective)
    logp_T, entropy_T = distribution(
        logits_TV,
        rows.targets_T,
        temperature=temperature,
        softcap=softcap,
        threshold_T=rows.threshold_T,
    )
    if objective is not None:
        return token_loss(logp_T, entropy_T, rows, objective).loss, logp_T, entropy_T
    loss_T = torch.zeros_like(logp_T)
    if rows.dlogp_T is not None:
        loss_T = loss_T + rows.dlogp_T * logp_T
    if rows.dentropy_T is not None:
        loss_T = loss_T + rows.dentropy_T * entropy_T
    return loss_T, logp_T, entropy_T
