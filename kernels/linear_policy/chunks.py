"""The LM head in chunks of rows: three matrix products, gradients taken in the forward.

Axes: T rows, H hidden, V vocabulary, C rows of one chunk. Of logits only one [C, V] buffer exists,
and the gradient overwrites it:

    Z = h·Wᵀ + b     Z ← ∂loss/∂Z (policy_rows)     ∂h = Z·W     ∂W += Zᵀ·h     ∂b += Zᵀ·1

∂W is summed over chunks in float32 (or float64), whatever the dtype of the weights.
"""

import dataclasses

import torch
from torch import Tensor

from ..policy_rows import REPORT, Objective, Rows, policy_rows_

CHUNK_BYTES = {"cpu": 256 << 20, "cuda": 1240 << 20}
"""Bytes of the [C, V] buffer by device: few, fat chunks, since each reads and writes all of ∂W."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the logits become a distribution and a loss, and what is wanted of it."""

    objective: Objective | None
    temperature: float
    softcap: float | None
    chunk_bytes: int | None
    entropy: bool
    dtype: torch.dtype
    """Of the operands of the matrix products."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature is positive here, not {self.temperature}")
        if self.softcap is not None and not self.softcap > 0:
            raise ValueError(f"softcap is positive or None, not {self.softcap}")


@dataclasses.dataclass
class Result:
    """The report of all rows, and the gradients that were wanted."""

    report_KT: Tensor
    hidden: Tensor | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None


def _add_outer(total_VH: Tensor, gradient_CV: Tensor, hidden_CH: Tensor, first: bool) -> None:
    """∂W += Zᵀ·h, summed in the dtype of ∂W."""
    if total_VH.dtype == hidden_CH.dtype and first:
        torch.mm(gradient_CV.t(), hidden_CH, out=total_VH)
    elif total_VH.dtype == hidden_CH.dtype:
        total_VH.addmm_(gradient_CV.t(), hidden_CH)
    elif total_VH.is_cuda:
        torch.addmm(total_VH, gradient_CV.t(), hidden_CH, torch.float32, out=total_VH)
    else:
        # one rounding of the chunk's product: no CPU product of bfloat16 keeps its float32 sums
        total_VH.add_(gradient_CV.t() @ hidden_CH)


def run(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    rows: Rows,
    active_T: Tensor | None,
    settings: Settings,
    wanted: tuple[bool, bool, bool],
) -> Result:
    """Evaluate the rows of `active_T` (all if None), and the gradients wanted of hidden, weight,
    bias.

    Rows that are not active never reach a matrix product: their report is 0 and so is their
    gradient.
    """
    vocabulary = weight_VH.shape[0]
    wide = torch.promote_types(settings.dtype, torch.float32)
    report_KT = hidden_TH.new_zeros((len(REPORT), hidden_TH.shape[0]), dtype=wide)
    result = Result(report_KT)
    if wanted[0]:
        result.hidden = torch.zeros_like(hidden_TH, memory_format=torch.contiguous_format)
    if wanted[2]:
        result.bias = weight_VH.new_zeros(vocabulary, dtype=wide)
    index_T = None
    if active_T is not None:
        found_T = active_T.nonzero()[:, 0]
        index_T = found_T if len(found_T) < len(active_T) else None
    total = hidden_TH.shape[0] if index_T is None else len(index_T)
    if wanted[1]:
        result.weight = torch.empty(weight_VH.shape, dtype=wide, device=weight_VH.device)
        if total == 0 or wide != settings.dtype:
            # otherwise the first product writes all of it
            result.weight.zero_()
    weight_VH = weight_VH.to(settings.dtype)
    bias_V = None if bias_V is None else bias_V.to(settings.dtype)
    budget = settings.chunk_bytes or CHUNK_BYTES[hidden_TH.device.type]
    chunk = max(1, budget // (vocabulary * settings.dtype.itemsize))
    if chunk < total:
        # equal chunks, so that none is thin
        chunk = -(-total // -(-total // chunk))
    buffer_CV = hidden_TH.new_empty((min(chunk, total), vocabulary), dtype=settings.dtype)
    for start in range(0, total, chunk):
        stop = min(start + chunk, total)
        part: slice | Tensor = slice(start, stop) if index_T is None else index_T[start:stop]
        hidden_CH = hidden_TH[part].to(settings.dtype)
        logits_CV = buffer_CV[: stop - start]
        if bias_V is None:
            torch.mm(hidden_CH, weight_VH.t(), out=logits_CV)
        else:
            torch.addmm(bias_V, hidden_CH, weight_VH.t(), out=logits_CV)
        report_KC = report_KT.new_zeros((len(REPORT), stop - start))
        factor_C = policy_rows_(
            logits_CV,
            rows[part],
            report_KC,
            objective=settings.objective,
            temperature=settings.temperature,
            softcap=settings.softcap,
            gradient=any(wanted),
            entropy=settings.entropy,
        )
        report_KT[:, part] = report_KC
        if result.hidden is not None:
            back_CH = logits_CV @ weight_VH
            result.hidden[part] = back_CH if factor_C is None else back_CH.mul_(factor_C[:, None])
        if factor_C is not None:
            hidden_CH = hidden_CH * factor_C[:, None]
        if result.weight is not None:
            _add_outer(result.weight, logits_CV, hidden_CH, start == 0)
        if result.bias is not None:
            summed_V = logits_CV.sum(0, dtype=wide) if factor_C is None else factor_C @ logits_CV
            result.bias += summed_V
    return result
