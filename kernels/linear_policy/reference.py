"""The LM head with its loss, materialised: the definition, in plain torch with autograd.

    loss = Σ_t loss_t(z_t),   z = h·Wᵀ + b,   loss_t as in `policy_rows.reference`

All [T, V] logits exist at once; any float dtype.
"""

from torch import Tensor
from torch.nn import functional

from ..policy_rows.reference import Objective, Rows, policy_rows


def linear_policy(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    rows: Rows,
    *,
    objective: Objective | None,
    temperature: float = 1.0,
    bias: Tensor | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """loss, logp_T, entropy_T."""
    logits_TV = functional.linear(hidden_TH, weight_VH, bias)
    loss_T, logp_T, entropy_T = policy_rows(
        logits_TV, rows, objective=objective, temperature=temperature, softcap=softcap
    )
    return loss_T.sum(), logp_T, entropy_T
