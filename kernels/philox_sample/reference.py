"""Sampling as a function of (logits, key, position), in plain torch: definition and CPU path.

Axes: B rows (one live episode each), V vocabulary, N = ⌈V/1024⌉ blocks of it.

    x_v = z_v/τ        d_v = x_v − max x        e_v = exp(d_v) where v is kept, else 0
    (k₀, k₁, ·, ·) = philox4x32-10(counter = (position, 0, 0, 0), key)
    u_i = ((k_i ≫ 8) + ½)·2⁻²⁴, rounded to float32, so 0 < u ≤ 1      (1 − u_i if antithetic)
    block n = first n whose running sum of block masses exceeds u₀·(total mass)
    token v = first v in block n whose running sum of e exceeds u₁·(mass of the block)

An entry of zero mass is never chosen; where rounding lets no running sum exceed, the last entry of
positive mass is. So, given the logits, a token depends on its key and its position, and not on the
order or the size of the batch. Ties: two implementations sum a block in different orders, so their
tokens agree given equal logits unless u falls within a few ulp (float32) of a boundary of the
running sums, and their kept sets unless p falls so near a boundary of the sorted running sum.

Kept set, in the values d: the intersection of top-k (d ≥ the k-th largest), top-p (the smallest
set {d ≥ t} of mass ≥ p) and min-p (e^d ≥ min_p), each over the whole distribution. Equal values are
kept or dropped together. It is reported as a threshold on d, the midpoint between the smallest kept
and the largest dropped value (−∞ if none is dropped), which slightly different logits reproduce.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011), Philox4x32-10.
"""

import math

import torch
from torch import Tensor

BLOCK = 1024
"""Vocabulary entries a block of the two-level inverse CDF: part of the sampling law."""

_WORD = 0xFFFFFFFF
_PREFIX = 1024
"""Largest values looked at for top-p before the whole row is sorted."""


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor], rounds: int = 10
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit words (in int64) of Philox4x32 from a counter of four words and a key of two.

    The words keep Triton's order: `tl.randint4x(seed, offset)` is counter (offset, 0, 0, 0) and key
    (seed & 0xFFFFFFFF, seed >> 32).
    """
    c0, c1, c2, c3 = (word.long() & _WORD for word in counter)
    k0, k1 = (word.long() & _WORD for word in key)
    for _ in range(rounds):
        # the product may wrap in int64: its bits are still those of the unsigned product
        left, right = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c2 = (right >> 32 & _WORD) ^ c1 ^ k0, (left >> 32 & _WORD) ^ c3 ^ k1
        c1, c3 = right & _WORD, left & _WORD
        k0, k1 = k0 + 0x9E3779B9 & _WORD, k1 + 0xBB67AE85 & _WORD
    return c0, c1, c2, c3


def uniforms(key_B: Tensor, position_B: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent float32 numbers in (0, 1] a row, from words 0 and 1 of one Philox draw.

    `key_B` int64 holds the key's low word in its low half; `position_B` counts from 0, below 2³².
    """
    zero = torch.zeros_like(position_B)
    words = philox4x32((position_B, zero, zero, zero), (key_B, key_B >> 32))
    first, second = ((word >> 8).float().add_(0.5).mul_(2.0**-24) for word in words[:2])
    return first, second


def check(
    logits_BV: Tensor,
    key_B: Tensor,
    position_B: Tensor,
    antithetic_B: Tensor | None,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> None:
    """Refuse shapes and settings that mean nothing."""
    if logits_BV.ndim != 2 or logits_BV.shape[1] == 0:
        raise ValueError(f"logits have shape (B, V) with V > 0, not {tuple(logits_BV.shape)}")
    for name, value in (("key", key_B), ("position", position_B), ("antithetic", antithetic_B)):
        if value is not None and value.shape != logits_BV.shape[:1]:
            raise ValueError(f"{name} has one entry a row {logits_BV.shape[:1]}, not {value.shape}")
    if key_B.dtype != torch.int64:
        raise ValueError(f"a key is 64 bits in an int64 tensor, not {key_B.dtype}")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is a finite number from 0 (greedy) up, not {temperature}")
    if top_k < 0 or not 0 < top_p <= 1 or not 0 <= min_p <= 1:
        raise ValueError(
            "truncation needs top_k >= 0, 0 < top_p <= 1 and 0 <= min_p <= 1, "
            f"not {top_k}, {top_p}, {min_p}"
        )


def _first_above(mass: Tensor, running: Tensor, target: Tensor) -> Tensor:
    """Per row, the first index of positive mass whose running sum exceeds the target, or the last
    index of positive mass."""
    positive = mass > 0
    hit = positive & (running > target[:, None])
    last = mass.shape[1] - 1 - positive.flip(1).int().argmax(1)
    return torch.where(hit.any(1), hit.int().argmax(1), last)


def _cut(d_BV: Tensor, mass_BV: Tensor, top_k: int, top_p: float, min_p: float) -> Tensor:
    """cut_B: the smallest d that top-k, top-p and min-p together let stay."""
    width = d_BV.shape[1]
    cut = d_BV.new_full(d_BV.shape[:1], -torch.inf)
    if 0 < top_k < width:
        cut = d_BV.topk(top_k, dim=1).values[:, -1]
    if top_p < 1:
        goal = mass_BV.view(len(d_BV), -1, BLOCK).sum(2).sum(1) * top_p
        top = d_BV.topk(min(_PREFIX, width), dim=1).values
        if bool((top.exp().sum(1) < goal).any()):
            top = d_BV.sort(dim=1, descending=True).values
        short = (top.exp().cumsum(1) < goal[:, None]).sum(1).clamp(max=top.shape[1] - 1)
        cut = torch.maximum(cut, top.gather(1, short[:, None])[:, 0])
    if min_p > 0:
        cut = cut.clamp(min=math.log(min_p))
    return cut


def _threshold(d_BV: Tensor, kept_BV: Tensor) -> Tensor:
    """threshold_B: midway between the smallest kept and the largest dropped finite value."""
    low = torch.where(kept_BV, d_BV, torch.inf).amin(1)
    high = torch.where(kept_BV, -torch.inf, d_BV).amax(1)
    middle = (low + high) / 2
    # neighbouring floats have no number between them
    return torch.where(middle > high, middle, torch.where(high == -torch.inf, high, low))


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
    """One token a row, by the law at the top of this file.

    Returns token_B int64; logprob_B float32, under the tempered, truncated, renormalised
    distribution; threshold_B float32, of the kept set; entropy_B float32 of that distribution, or
    None. Temperature 0 is greedy: lowest index on ties, log-probability, threshold and entropy 0.
    A row without a finite logit gives token −1, log-probability and threshold −∞.
    """
    check(
        logits_BV,
        key_B,
        position_B,
        antithetic_B,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
    )
    rows, vocabulary = logits_BV.shape
    possible_B = logits_BV.amax(1) > -torch.inf
    if temperature == 0:
        token_B = torch.where(possible_B, logits_BV.argmax(1), -1)
        zero_B = torch.zeros(rows, device=logits_BV.device).masked_fill_(~possible_B, -torch.inf)
        return token_B, zero_B, zero_B.clone(), torch.zeros_like(zero_B) if entropy else None

    # whole blocks, and sums by block: then no sum is split by what else is in the batch
    shape = (rows, -(-vocabulary // BLOCK) * BLOCK)
    d_BV = torch.full(shape, -torch.inf, device=logits_BV.device)
    d_BV[:, :vocabulary] = logits_BV
    d_BV.mul_(1 / temperature)
    d_BV.sub_(d_BV.amax(1, keepdim=True).masked_fill_(~possible_B[:, None], 0.0))
    mass_BV = d_BV.exp()
    threshold_B = d_BV.new_full((rows,), -torch.inf)
    if 0 < top_k < vocabulary or top_p < 1 or min_p > 0:
        kept_BV = d_BV >= _cut(d_BV, mass_BV, top_k, top_p, min_p)[:, None]
        threshold_B = _threshold(d_BV, kept_BV)
        mass_BV.masked_fill_(~kept_BV, 0.0)

    u0_B, u1_B = uniforms(key_B, position_B)
    if antithetic_B is not None:
        u0_B, u1_B = (torch.where(antithetic_B, 1 - u, u) for u in (u0_B, u1_B))
    mass_BNW = mass_BV.view(rows, -1, BLOCK)
    mass_BN = mass_BNW.sum(2)
    running_BN = mass_BN.cumsum(1)
    total_B = running_BN[:, -1]
    block_B = _first_above(mass_BN, running_BN, u0_B * total_B)
    mass_BW = mass_BNW[torch.arange(rows, device=d_BV.device), block_B]
    running_BW = mass_BW.cumsum(1)
    token_B = block_B * BLOCK + _first_above(mass_BW, running_BW, u1_B * running_BW[:, -1])

    logprob_B = d_BV.gather(1, token_B[:, None])[:, 0] - total_B.log()
    token_B = torch.where(possible_B, token_B, -1)
    logprob_B = torch.where(possible_B, logprob_B, -torch.inf)
    if not entropy:
        return token_B, logprob_B, threshold_B, None
    product_BV = torch.where(mass_BV > 0, mass_BV * d_BV, 0.0)
    mean_B = product_BV.view(rows, -1, BLOCK).sum(2).sum(1) / total_B
    entropy_B = torch.where(possible_B, total_B.log() - mean_B, 0.0)
    return token_B, logprob_B, threshold_B, entropy_B
