"""Rows of logits on the CPU: the same result as the definition, in place and in blocks that fit the
cache.

With m = max x, e_v = exp(x_v − m) over the kept set, s = Σe, u = Σ e·(x − m):

    logπ = (x_y − m) − log s        H = log s − u/s
    g = ∂loss/∂logπ and h = ∂loss/∂H come from the definition of the loss by autograd
    ∂loss/∂z_v = [g·(1{v=y} − e_v/s) − h·(e_v/s)·((x_v − m) − u/s)]·(1 − tanh²)/τ

Without an h the row factor −g/(s·τ) can be left out of the buffer, which then holds e − s·1{v=y}:
the caller puts it on the far smaller operands of its matrix products, and one pass over the logits
is saved.
"""

import torch
from torch import Tensor

from .reference import Objective, Rows, Terms, token_loss

REPORT = ("loss", "logp", "entropy", "ratio", "clipped", "kl")
"""What is reported of a row, in the order of the report's first axis."""

_BLOCK_ELEMENTS = 1 << 21
"""Of a block: near the cache in size, and large enough that threads seldom wait for each other."""
_FAR = -1e4
"""Finite stand-in for −∞ in a product whose other factor, its exponential, is 0."""


def derivatives(
    logp_T: Tensor, entropy_T: Tensor | None, rows: Rows, objective: Objective | None
) -> tuple[Terms | None, Tensor, Tensor | None]:
    """Terms of the loss, and its derivatives by log-probability and entropy."""
    if objective is None:
        given_T = rows.dlogp_T if rows.dlogp_T is not None else torch.zeros_like(logp_T)
        return None, given_T, rows.dentropy_T
    with torch.enable_grad():
        leaf_T = logp_T.detach().requires_grad_()
        terms = token_loss(leaf_T, entropy_T, rows, objective)
        (dlogp_T,) = torch.autograd.grad(terms.loss.sum(), leaf_T)
    dentropy_T = None
    if objective.entropy_coef != 0:
        assert rows.weights_T is not None
        dentropy_T = -objective.entropy_coef * rows.weights_T
    return terms._replace(loss=terms.loss.detach()), dlogp_T, dentropy_T


def _report(
    report_KT: Tensor, terms: Terms | None, rows: Rows, logp_T: Tensor, entropy_T: Tensor | None
) -> None:
    """Write the report of some rows."""
    report_KT[1] = logp_T
    report_KT[2] = 0 if entropy_T is None else entropy_T
    if terms is not None:
        report_KT[0], report_KT[3], report_KT[4], report_KT[5] = terms
        return
    loss_T = torch.zeros_like(logp_T)
    if rows.dlogp_T is not None:
        loss_T = loss_T + rows.dlogp_T * logp_T
    if rows.dentropy_T is not None and entropy_T is not None:
        loss_T = loss_T + rows.dentropy_T * entropy_T
    report_KT[0], report_KT[3:] = loss_T, 0


@torch.no_grad()
def policy_rows_(
    logits_TV: Tensor,
    rows: Rows,
    report_KT: Tensor,
    *,
    objective: Objective | None,
    temperature: float = 1.0,
    softcap: float | None = None,
    gradient: bool,
    entropy: bool,
) -> Tensor | None:
    """Report each row, and overwrite its logits by ∂loss/∂logits where `gradient` is set.

    Returns factor_T where the gradient still has to be multiplied by it row by row, else None. The
    contents of the logits are lost in any case. `report_KT` has the float dtype that rows are
    computed in.
    """
    count, vocabulary = logits_TV.shape
    dentropy = rows.dentropy_T is not None or (
        objective is not None and objective.entropy_coef != 0
    )
    entropy = entropy or dentropy
    deferred = gradient and not dentropy and logits_TV.dtype == report_KT.dtype
    step = max(1, _BLOCK_ELEMENTS // vocabulary)
    spare = iter(report_KT.new_empty(3, min(step, count), vocabulary)) if count else iter(())
    mass_T = report_KT.new_empty(count)
    upcast_, d_, slope_ = None, None, None
    if logits_TV.dtype != report_KT.dtype:
        upcast_ = next(spare)
    if entropy:
        d_ = next(spare)
    if softcap is not None and gradient:
        slope_ = next(spare)
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        size = part.stop - part.start
        block, own = logits_TV[part], rows[part]
        target = own.targets_T[:, None]
        x = block if upcast_ is None else upcast_[:size].copy_(block)
        if softcap is not None:
            x.mul_(1 / softcap).tanh_()
            if slope_ is not None:
                torch.mul(x, x, out=slope_[:size]).neg_().add_(1)
        if temperature != 1 or softcap is not None:
            x.mul_((1.0 if softcap is None else softcap) / temperature)
        top = x.amax(1, keepdim=True)
        x.sub_(top.masked_fill_(top == -torch.inf, 0.0))
        x_y = x.gather(1, target)[:, 0]
        if own.threshold_T is not None:
            x.masked_fill_((x < own.threshold_T[:, None]).scatter_(1, target, False), -torch.inf)
        if d_ is not None:
            torch.clamp(x, min=_FAR, out=d_[:size])
        s = torch.sum(x.exp_(), 1, out=mass_T[part])
        logp = torch.where(s > 0, x_y - s.log(), -torch.inf)
        h = None
        if d_ is not None:
            mean = d_[:size].mul_(x).sum(1) / s
            h = torch.where(s > 0, s.log() - mean, 0.0)
        if deferred:
            x.scatter_add_(1, target, -s[:, None])
            report_KT[1, part] = logp
            if h is not None:
                report_KT[2, part] = h
        else:
            terms, dlogp, dh = derivatives(logp, h, own, objective)
            _report(report_KT[:, part], terms, own, logp, h)
            if not gradient:
                continue
            inverse = torch.where(s > 0, 1 / (s * temperature), 0.0)
            if dh is None:
                x.mul_((-dlogp * inverse)[:, None])
            else:
                assert d_ is not None
                x.mul_(((dh * mean - dlogp) * inverse)[:, None])
                x.addcmul_(d_[:size], (-dh * inverse)[:, None])
            x.scatter_add_(1, target, (dlogp * inverse * s)[:, None])
        if slope_ is not None:
            x.mul_(slope_[:size])
        if upcast_ is not None:
            block.copy_(x)
    if not deferred:
        return None
    logp_T, entropy_T = report_KT[1].clone(), report_KT[2].clone() if entropy else None
    terms, dlogp_T, _ = derivatives(logp_T, entropy_T, rows, objective)
    _report(report_KT, terms, rows, logp_T, entropy_T)
    return torch.where(mass_T > 0, -dlogp_T / (mass_T * temperature), 0.0)
