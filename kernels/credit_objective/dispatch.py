"""Which implementation runs: by the device of the tokens, and never a silent fallback."""

from ..policy_rows import Objective
from . import reference
from .reference import Credit, Evaluation, Packed


def credit_objective(
    packed: Packed, credit: Credit, objective: Objective | None = None
) -> Evaluation:
    """Advantages, returns and, with an objective, the loss: see `reference.credit_objective`."""
    device = packed.mask_T.device.type
    if device == "cuda":
        from . import fused

        return fused.credit_objective(packed, credit, objective)
    if device == "cpu":
        return reference.credit_objective(packed, credit, objective)
    raise ValueError(f"credit_objective runs on cpu and cuda, not on {device!r}")
