"""Which implementation runs: by the device of the logits, and never a silent fallback."""

from torch import Tensor

from . import reference


def sample(
    logits_BV: Tensor,
    key_B: Tensor,
    position_B: Tensor,
    *,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    antithetic_B: Tensor | None = None,
    entropy: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """token_B int64, logprob_B, threshold_B, entropy_B (or None): see `reference.sample`."""
    implementation = reference.sample
    if logits_BV.is_cuda:
        from . import fused

        implementation = fused.sample
    elif logits_BV.device.type != "cpu":
        raise ValueError(f"sample runs on cpu and cuda, not on {logits_BV.device.type!r}")
    return implementation(
        logits_BV,
        key_B,
        position_B,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        antithetic_B=antithetic_B,
        entropy=entropy,
    )
