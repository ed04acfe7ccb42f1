"""Sampling in Triton: one program a row, one launch from logits to token and log-probability.

Passes over a row (which stays in the L2 cache): the maximum; for top-k and top-p a bisection of the
cut; the threshold; the masses of all blocks of 1024, kept in registers; then the chosen block
alone. The cut is sought on the bits of −d ≥ 0, which order as integers: 31 halvings find the
smallest key whose running count reaches k, and in the same passes the smallest whose running mass
reaches p, with no sort.
"""

# kernels are untyped: triton traces them
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from .reference import BLOCK, check

_LARGEST = 0x7F7FFFFF
"""Bits of the largest finite float32."""


@triton.jit
def _distance(logits, v, vocabulary, inv_temperature, top):
    """d = x − max x of some entries, −∞ beyond the row."""
    z = tl.load(logits + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
    return z * inv_temperature - top


@triton.jit
def _first_above(mass, running, target, lane, WIDTH: tl.constexpr):
    """First lane of positive mass whose running sum exceeds the target, or the last of positive
    mass."""
    hit = tl.min(tl.where((mass > 0) & (running > target), lane, WIDTH), 0)
    last = tl.max(tl.where(mass > 0, lane, 0), 0)
    return tl.where(hit < WIDTH, hit, last)


@triton.jit
def philox_sample_kernel(
    logits,
    keys,
    positions,
    antithetic,
    tokens,
    logprobs,
    thresholds,
    entropies,
    vocabulary,
    logits_stride,
    inv_temperature,
    top_k,
    top_p,
    log_min_p,
    GREEDY: tl.constexpr,
    TOP_K: tl.constexpr,
    TOP_P: tl.constexpr,
    MIN_P: tl.constexpr,
    LARGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPED: tl.constexpr,
    BLOCKS: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * logits_stride
    column = tl.arange(0, TILE)

    highest = tl.full([TILE], float("-inf"), tl.float32)
    for start in range(0, vocabulary, TILE):
        d = _distance(logits, start + column, vocabulary, inv_temperature, 0.0)
        highest = tl.maximum(highest, d)
    top = tl.max(highest, 0)
    possible = top > float("-inf")
    top = tl.where(possible, top, 0.0)

    if GREEDY:
        first = tl.full([TILE], 0x7FFFFFFF, tl.int32)
        for start in range(0, vocabulary, TILE):
            v = start + column
            d = _distance(logits, v, vocabulary, inv_temperature, 0.0)
            first = tl.minimum(first, tl.where((d == top) & (v < vocabulary), v, 0x7FFFFFFF))
        outcome = tl.where(possible, 0.0, float("-inf"))
        tl.store(tokens + row, tl.where(possible, tl.min(first, 0), -1).to(tl.int64))
        tl.store(logprobs + row, outcome)
        tl.store(thresholds + row, outcome)
        if entropies is not None:
            tl.store(entropies + row, 0.0)
        return

    key_cut = tl.full([], LARGEST, tl.int32)
    if TOP_K or TOP_P:
        total_mass = tl.zeros([TILE], tl.float32)
        for start in range(0, vocabulary, TILE):
            d = _distance(logits, start + column, vocabulary, inv_temperature, top)
            total_mass += tl.exp(d)
        goal = top_p * tl.sum(total_mass, 0)
        low_k = tl.full([], 0, tl.int32)
        high_k = tl.full([], LARGEST, tl.int32)
        low_p = tl.full([], 0, tl.int32)
        high_p = tl.full([], LARGEST, tl.int32)
        for _ in range(31):
            middle_k = low_k + (high_k - low_k) // 2
            middle_p = low_p + (high_p - low_p) // 2
            count = tl.zeros([TILE], tl.int32)
            reached = tl.zeros([TILE], tl.float32)
            for start in range(0, vocabulary, TILE):
                d = _distance(logits, start + column, vocabulary, inv_temperature, top)
                key = tl.abs(d).to(tl.int32, bitcast=True)
                if TOP_K:
                    count += (key <= middle_k).to(tl.int32)
                if TOP_P:
                    reached += tl.where(key <= middle_p, tl.exp(d), 0.0)
            if TOP_K:
                enough = tl.sum(count, 0) >= top_k
                high_k = tl.where(enough, middle_k, high_k)
                low_k = tl.where(enough, low_k, tl.minimum(middle_k + 1, high_k))
            if TOP_P:
                enough = tl.sum(reached, 0) >= goal
                high_p = tl.where(enough, middle_p, high_p)
                low_p = tl.where(enough, low_p, tl.minimum(middle_p + 1, high_p))
        if TOP_K:
            key_cut = high_k
        if TOP_P:
            key_cut = tl.minimum(key_cut, high_p)

    threshold = tl.full([], float("-inf"), tl.float32)
    if TOP_K or TOP_P or MIN_P:
        smallest = tl.full([TILE], float("inf"), tl.float32)
        largest = tl.full([TILE], float("-inf"), tl.float32)
        for start in range(0, vocabulary, TILE):
            d = _distance(logits, start + column, vocabulary, inv_temperature, top)
            kept = tl.abs(d).to(tl.int32, bitcast=True) <= key_cut
            if MIN_P:
                kept = kept & (d >= log_min_p)
            smallest = tl.minimum(smallest, tl.where(kept, d, float("inf")))
            largest = tl.maximum(largest, tl.where(kept, float("-inf"), d))
        kept_low = tl.min(smallest, 0)
        dropped = tl.max(largest, 0)
        middle = (kept_low + dropped) / 2
        threshold = tl.where(
            middle > dropped, middle, tl.where(dropped == float("-inf"), dropped, kept_low)
        )

    # masses of all blocks, GROUPED blocks at a time
    block = tl.arange(0, BLOCKS)
    inner = tl.arange(0, BLOCK)
    part = tl.arange(0, GROUPED)
    masses = tl.zeros([BLOCKS], tl.float32)
    moment = tl.zeros([GROUPED], tl.float32)
    for first in range(0, tl.cdiv(vocabulary, BLOCK), GROUPED):
        v = (first + part)[:, None] * BLOCK + inner[None, :]
        d = _distance(logits, v, vocabulary, inv_temperature, top)
        e = tl.exp(d)
        if TOP_K or TOP_P or MIN_P:
            e = tl.where(d >= threshold, e, 0.0)
        sums = tl.sum(e, 1)
        at = block[None, :] == (first + part)[:, None]
        masses += tl.sum(tl.where(at, sums[:, None], 0.0), 0)
        if entropies is not None:
            moment += tl.sum(tl.where(e > 0, e * d, 0.0), 1)
    running = tl.cumsum(masses, 0)
    total = tl.sum(tl.where(block == BLOCKS - 1, running, 0.0), 0)

    key = tl.load(keys + row)
    c0 = tl.load(positions + row).to(tl.int32)
    zero = c0 * 0
    word_0, word_1, _, _ = tl.philox(key, c0, zero, zero, zero)
    u_0 = ((word_0 >> 8).to(tl.float32) + 0.5) * (1.0 / 16777216.0)
    u_1 = ((word_1 >> 8).to(tl.float32) + 0.5) * (1.0 / 16777216.0)
    if antithetic is not None:
        flipped = tl.load(antithetic + row) != 0
        u_0 = tl.where(flipped, 1 - u_0, u_0)
        u_1 = tl.where(flipped, 1 - u_1, u_1)

    chosen = _first_above(masses, running, u_0 * total, block, BLOCKS)
    v = chosen * BLOCK + inner
    d = _distance(logits, v, vocabulary, inv_temperature, top)
    e = tl.exp(d)
    if TOP_K or TOP_P or MIN_P:
        e = tl.where(d >= threshold, e, 0.0)
    within = tl.cumsum(e, 0)
    block_mass = tl.sum(tl.where(inner == BLOCK - 1, within, 0.0), 0)
    index = _first_above(e, within, u_1 * block_mass, inner, BLOCK)
    log_total = tl.log(tl.where(possible, total, 1.0))
    logprob = tl.sum(tl.where(inner == index, d, 0.0), 0) - log_total
    tl.store(tokens + row, tl.where(possible, chosen * BLOCK + index, -1).to(tl.int64))
    tl.store(logprobs + row, tl.where(possible, logprob, float("-inf")))
    tl.store(thresholds + row, threshold)
    if entropies is not None:
        mean = tl.sum(moment, 0) / tl.where(possible, total, 1.0)
        tl.store(entropies + row, tl.where(possible, log_total - mean, 0.0))


def tile(vocabulary: int) -> tuple[int, int]:
    """(entries of a row read at once, warps): fixed by the vocabulary, so that sums never
    change."""
    return (2048, 8) if vocabulary > 4096 else (BLOCK, 4)


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
    """The kernel behind `reference.sample`'s signature."""
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
    if logits_BV.stride(1) != 1:
        logits_BV = logits_BV.contiguous()
    token_B = torch.empty(rows, dtype=torch.int64, device=logits_BV.device)
    logprob_B, threshold_B, entropy_B = token_B.new_empty((3, rows), dtype=torch.float32)
    width, warps = tile(vocabulary)
    if rows:
        philox_sample_kernel[(rows,)](
            logits_BV,
            key_B.contiguous(),
            position_B.contiguous(),
            None if antithetic_B is None else antithetic_B.to(torch.int8).contiguous(),
            token_B,
            logprob_B,
            threshold_B,
            entropy_B if entropy else None,
            vocabulary,
            logits_BV.stride(0),
            1 / temperature if temperature else 1.0,
            top_k,
            top_p,
            math.log(min_p) if min_p else 0.0,
            GREEDY=temperature == 0,
            TOP_K=0 < top_k < vocabulary,
            TOP_P=top_p < 1,
            MIN_P=min_p > 0,
            LARGEST=_LARGEST,
            BLOCK=BLOCK,
            GROUPED=width // BLOCK,
            BLOCKS=triton.next_power_of_2(triton.cdiv(vocabulary, BLOCK)),
            TILE=width,
            num_warps=warps,
            enable_fp_fusion=False,
        )
    return token_B, logprob_B, threshold_B, entropy_B if entropy else None
