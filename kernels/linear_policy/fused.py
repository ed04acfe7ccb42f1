"""The chunked LM head as functions with gradients, and the choice of the rows that need it.

A row is dropped before the matrix products if the coefficient of every term is zero:

    active = (w ≠ 0 and (c·A ≠ 0 or kl_coef ≠ 0 or entropy_coef ≠ 0)) or a statistic is asked for

so that a group of equal rewards costs nothing, unless a KL or an entropy term still moves it.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..policy_rows import REPORT, Objective, Outcome, Rows
from .chunks import Settings, run

STATISTICS = tuple(f"{name}_T" for name in REPORT)
"""Names of the statistics that can be asked for: loss_T is weighted, the others are not."""


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_TH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        rows: Rows,
        active_T: Tensor | None,
        settings: Settings,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        first, second, third = (training and need for need in ctx.needs_input_grad[:3])
        with torch.autocast(hidden_TH.device.type, enabled=False):
            result = run(
                hidden_TH, weight_VH, bias_V, rows, active_T, settings, (first, second, third)
            )
        ctx.dtypes = tuple(None if x is None else x.dtype for x in (hidden_TH, weight_VH, bias_V))
        ctx.gradients = (result.hidden, result.weight, result.bias)
        ctx.mark_non_differentiable(result.report_KT)
        return result.report_KT[0].sum(), result.report_KT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError(
                "the gradients of this loss were taken in its forward and have been handed out: "
                "backward runs once"
            )
        gradients, ctx.gradients = ctx.gradients, None
        one = upstream.device.type == "cpu" and upstream.item() == 1
        scaled = [x if x is None or one else x.mul_(upstream) for x in gradients]
        cast = [None if x is None else x.to(d) for x, d in zip(scaled, ctx.dtypes, strict=True)]
        return *cast, None, None, None, None


def _settings(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    targets_T: Tensor,
    bias: Tensor | None,
    objective: Objective | None,
    temperature: float,
    softcap: float | None,
    chunk_bytes: int | None,
    entropy: bool,
) -> Settings:
    """Check the shapes, and settle the dtype of the matrix products: autocast's, or the operands'
    own."""
    if hidden_TH.ndim != 2 or weight_VH.ndim != 2 or hidden_TH.shape[1] != weight_VH.shape[1]:
        raise ValueError(
            "hidden states are (T, H) and weights (V, H), not "
            f"{tuple(hidden_TH.shape)} and {tuple(weight_VH.shape)}"
        )
    if targets_T.shape != hidden_TH.shape[:1]:
        raise ValueError(
            f"{hidden_TH.shape[0]} rows have {hidden_TH.shape[0]} targets, "
            f"not {tuple(targets_T.shape)}"
        )
    if bias is not None and bias.shape != weight_VH.shape[:1]:
        raise ValueError(f"a bias is ({weight_VH.shape[0]},), not {tuple(bias.shape)}")
    device = hidden_TH.device.type
    dtype = hidden_TH.dtype
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    elif weight_VH.dtype != dtype:
        raise ValueError(f"hidden states are {dtype} and weights {weight_VH.dtype}: they differ")
    return Settings(objective, temperature, softcap, chunk_bytes, entropy, dtype)


def _rows(
    targets_T: Tensor, wide: torch.dtype, outcome: Outcome | None = None, **named: Any
) -> Rows:
    """Rows in the dtype that they are computed in, detached."""
    cast = {
        name: value
        if value is None or name == "episode_T"
        else value.detach().to(wide).contiguous()
        for name, value in named.items()
    }
    return Rows(targets_T.long().contiguous(), outcome=outcome, **cast)


def _evaluate(*operands: Any) -> tuple[Tensor, Tensor]:
    """loss and report_KT, with gradients where they are enabled."""
    loss, report_KT = _Head.apply(*operands, torch.is_grad_enabled())
    return loss, report_KT


def active_rows(rows: Rows, objective: Objective) -> Tensor:
    """active_T: rows with a term of the loss whose coefficient is not zero."""
    assert rows.weights_T is not None
    weighted_T = rows.weights_T != 0
    if objective.kl_coef != 0 or objective.entropy_coef != 0:
        return weighted_T
    if objective.kind != "ce":
        advantages_T = rows.advantages()
        assert advantages_T is not None
        weighted_T = weighted_T & (advantages_T != 0)
    return weighted_T if rows.correction_T is None else weighted_T & (rows.correction_T != 0)


def linear_policy(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    targets_T: Tensor,
    *,
    old_logprobs_T: Tensor | None = None,
    advantages_T: Tensor | None = None,
    weights_T: Tensor,
    objective: Objective,
    temperature: float = 1.0,
    bias: Tensor | None = None,
    softcap: float | None = None,
    threshold_T: Tensor | None = None,
    ref_logprobs_T: Tensor | None = None,
    correction_T: Tensor | None = None,
    sequence_log_ratio_T: Tensor | None = None,
    outcome: Outcome | None = None,
    episode_T: Tensor | None = None,
    stats: Collection[str] = (),
    stats_rows_T: Tensor | None = None,
    chunk_bytes: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """loss = Σ_t loss_t with gradients to hidden states, weights and bias; statistics on demand.

    loss_t is `policy_rows.reference`'s, weighted by `weights_T` with all normalisers inside.
    `stats` names some of STATISTICS; each comes as a detached [T] tensor, for the rows of
    `stats_rows_T` (those of weight, if None), and is 0 where the row was not evaluated. The
    gradients exist, as zeros, where no row is active. The upstream gradient of the loss is a
    scalar, and backward runs once.
    """
    if unknown := set(stats) - set(STATISTICS):
        raise ValueError(f"{sorted(unknown)} are no statistics: {', '.join(STATISTICS)} are")
    settings = _settings(
        hidden_TH,
        weight_VH,
        targets_T,
        bias,
        objective,
        temperature,
        softcap,
        chunk_bytes,
        "entropy_T" in stats,
    )
    rows = _rows(
        targets_T,
        torch.promote_types(settings.dtype, torch.float32),
        weights_T=weights_T,
        old_logprobs_T=old_logprobs_T,
        advantages_T=advantages_T,
        ref_logprobs_T=ref_logprobs_T,
        correction_T=correction_T,
        sequence_log_ratio_T=sequence_log_ratio_T,
        threshold_T=threshold_T,
        episode_T=episode_T,
        outcome=outcome,
    )
    rows.check(objective)
    active_T = active_rows(rows, objective)
    if stats:
        asked_T = weights_T != 0 if stats_rows_T is None else stats_rows_T
        active_T = active_T | asked_T
    loss, report_KT = _evaluate(hidden_TH, weight_VH, bias, rows, active_T, settings)
    return loss, {name: report_KT[STATISTICS.index(name)] for name in stats}


def linear_policy_given(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    targets_T: Tensor,
    *,
    dlogp_T: Tensor,
    dentropy_T: Tensor | None = None,
    temperature: float = 1.0,
    bias: Tensor | None = None,
    softcap: float | None = None,
    threshold_T: Tensor | None = None,
    chunk_bytes: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Σ_t sg(dlogp_t)·logπ_t + sg(dentropy_t)·H_t: the second pass of a loss of whole sequences.

    The derivatives come from log-probabilities of a first pass (`linear_logprobs`). The value is
    only the linear surrogate; its gradient is the loss's. Rows whose derivatives are zero are
    dropped. The statistics are logp_T and, with `dentropy_T`, entropy_T, of the rows that were
    evaluated.
    """
    settings = _settings(
        hidden_TH, weight_VH, targets_T, bias, None, temperature, softcap, chunk_bytes, False
    )
    rows = _rows(
        targets_T,
        torch.promote_types(settings.dtype, torch.float32),
        dlogp_T=dlogp_T,
        dentropy_T=dentropy_T,
        threshold_T=threshold_T,
    )
    active_T = dlogp_T != 0 if dentropy_T is None else (dlogp_T != 0) | (dentropy_T != 0)
    loss, report_KT = _evaluate(hidden_TH, weight_VH, bias, rows, active_T, settings)
    names = ("logp_T",) if dentropy_T is None else ("logp_T", "entropy_T")
    return loss, {name: report_KT[STATISTICS.index(name)] for name in names}


@torch.no_grad()
def linear_logprobs(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    targets_T: Tensor,
    *,
    temperature: float = 1.0,
    bias: Tensor | None = None,
    softcap: float | None = None,
    threshold_T: Tensor | None = None,
    entropy: bool = False,
    chunk_bytes: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """logp_T, and entropy_T if asked for, without gradients: one matrix product."""
    settings = _settings(
        hidden_TH, weight_VH, targets_T, bias, None, temperature, softcap, chunk_bytes, entropy
    )
    wide = torch.promote_types(settings.dtype, torch.float32)
    rows = _rows(targets_T, wide, threshold_T=threshold_T)
    with torch.autocast(hidden_TH.device.type, enabled=False):
        result = run(hidden_TH, weight_VH, bias, rows, None, settings, (False, False, False))
    logp_T, entropy_T = result.report_KT[1], result.report_KT[2]
    return (logp_T, entropy_T) if entropy else logp_T
