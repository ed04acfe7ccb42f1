"""Which implementation runs: by the device of the logits, and never a silent fallback."""

from torch import Tensor

from . import cpu
from .reference import Objective, Rows


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
    """Report rows and turn their logits into the gradient in place: see `cpu.policy_rows_`."""
    if logits_TV.is_cuda:
        from . import fused

        implementation = fused.policy_rows_
    elif logits_TV.device.type == "cpu":
        implementation = cpu.policy_rows_
    else:
        raise ValueError(f"policy_rows runs on cpu and cuda, not on {logits_TV.device.type!r}")
    return implementation(
        logits_TV,
        rows,
        report_KT,
        objective=objective,
        temperature=temperature,
        softcap=softcap,
        gradient=gradient,
        entropy=entropy,
    )
