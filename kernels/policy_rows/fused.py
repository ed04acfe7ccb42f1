"""Rows of logits in Triton: one program a row, and the gradient written over the logits.

The row is read once for (m, s, u), with the running maximum rescaling s and u as it grows (twice,
if a threshold makes the kept set depend on the final maximum), and once more for the gradient:

    a = e^{m−m'}   s ← a·s + Σ e^{x−m'}   u ← a·(u + s·(m−m')) + Σ e^{x−m'}·(x−m')
    logπ = (x_y − m) − log s        H = log s − u/s
    ∂loss/∂z = [g·(1{v=y} − p) − h·p·((x − m) − u/s)]·(1 − tanh²)/τ,  g = ∂loss/∂logπ, h = ∂loss/∂H

All arithmetic is float32, whatever the dtype of the logits. Rows with g = h = 0 are filled with
zeros without a second read. Addresses are 64-bit: T·V exceeds 2³¹ at ordinary sizes.
"""

# kernels are untyped: triton traces them
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor

from .cpu import REPORT
from .reference import CLAMP, Objective, Rows


def tile(vocabulary: int) -> tuple[int, int]:
    """(entries of a row read at once, warps): fixed by the vocabulary, so that sums never
    change."""
    if vocabulary > 4096:
        return 8192, 16
    return max(128, triton.next_power_of_2(vocabulary)), 4


@triton.jit
def tanh(x):
    """tanh in float32: near 0 by its series, where the closed form cancels."""
    square = x * x
    series = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    decayed = tl.exp(-2 * tl.abs(x))
    size = (1 - decayed) / (1 + decayed)
    return tl.where(tl.abs(x) < 0.1, series, tl.where(x < 0, -size, size))


@triton.jit
def group_advantage(
    rewards,
    episode,
    group_size,
    epsilon,
    BASELINE: tl.constexpr,
    SCALE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Advantage of one episode from the rewards of its group, as `Outcome` defines it."""
    lane = tl.arange(0, GROUP)
    first = episode // group_size * group_size
    reward = tl.load(rewards + first + lane, mask=lane < group_size, other=float("nan"))
    scored = reward == reward
    count = tl.sum(scored.to(tl.float32), 0)
    origin = tl.max(tl.where(scored, reward, float("-inf")), 0)
    shifted = tl.where(scored, reward - origin, 0.0)
    centred = tl.where(scored, shifted - tl.sum(shifted, 0) / tl.maximum(count, 1.0), 0.0)
    others = tl.maximum(count - 1, 1.0)
    advantage = tl.sum(tl.where(lane == episode - first, centred, 0.0), 0)
    if BASELINE == "leave_one_out":
        advantage = advantage * count / others
    if SCALE == "std":
        advantage = advantage / (tl.sqrt_rn(tl.sum(centred * centred, 0) / others) + epsilon)
    return tl.where(count > 1, advantage, 0.0)


@triton.jit
def token_objective(
    logp,
    entropy,
    weight,
    old,
    advantage,
    ref,
    correction,
    sequence_log_ratio,
    clip_low,
    clip_high,
    dual_clip,
    kl_coef,
    entropy_coef,
    KIND: tl.constexpr,
    KL: tl.constexpr,
    HAS_OLD: tl.constexpr,
    HAS_DUAL: tl.constexpr,
    HAS_REF: tl.constexpr,
    CLAMP: tl.constexpr,
):
    """Loss, its derivatives by logπ and H, ratio, clipped and KL, as `token_loss` defines them.

    Works on scalars and on blocks alike. `advantage` may have the sign of zero.
    """
    delta = logp * 0.0
    if KIND == "gspo_token":
        delta = sequence_log_ratio
    elif HAS_OLD:
        delta = logp - old
    inside = (delta >= -CLAMP) & (delta <= CLAMP)
    ratio = tl.exp(tl.minimum(tl.maximum(delta, -CLAMP), CLAMP))
    bounded = tl.minimum(tl.maximum(ratio, 1 - clip_low), 1 + clip_high)
    clipped = ratio < 0
    if KIND == "ce":
        loss = -logp
        slope = logp * 0.0 - 1.0
    elif KIND == "reinforce":
        loss = -advantage * logp
        slope = -advantage
    elif KIND == "cispo":
        loss = -bounded * advantage * logp
        slope = -bounded * advantage
        clipped = bounded != ratio
    else:
        free = -advantage * ratio
        held = -advantage * bounded
        clipped = held > free
        loss = tl.maximum(free, held)
        if HAS_DUAL:
            cap = -advantage * dual_clip
            capped = (advantage < 0) & (loss > cap)
            loss = tl.where(capped, cap, loss)
            clipped = clipped | capped
        slope = tl.where(clipped | (inside == 0), 0.0, free)
    loss = loss * correction
    slope = slope * correction
    kl = logp * 0.0
    if HAS_REF:
        gap = logp - ref
        if KL == "k1":
            kl = gap
            kl_slope = gap * 0.0 + 1.0
        elif KL == "k2":
            kl = gap * gap * 0.5
            kl_slope = gap
        else:
            held_gap = tl.minimum(tl.maximum(gap, -CLAMP), CLAMP)
            decayed = tl.exp(-held_gap)
            # near 0 the difference cancels, and its series does not
            series = held_gap * held_gap * (0.5 - held_gap * (1 / 6 - held_gap * (1 / 24)))
            small = tl.abs(gap) < 0.02
            kl = tl.where(small, series, decayed - 1 + gap)
            line = gap * (1 - gap * (0.5 - gap * (1 / 6 - gap * (1 / 24))))
            kl_slope = tl.where(gap == held_gap, tl.where(small, line, 1 - decayed), 1.0)
        loss += kl_coef * kl
        slope += kl_coef * kl_slope
    loss -= entropy_coef * entropy
    idle = weight == 0
    loss = tl.where(idle, 0.0, loss * weight)
    slope = tl.where(idle, 0.0, slope * weight)
    bend = tl.where(idle, 0.0, -entropy_coef * weight)
    return loss, slope, bend, ratio, clipped.to(tl.float32), kl


@triton.jit
def _scaled(raw, softcap, inv_temperature, SOFTCAP: tl.constexpr):
    """x = softcap·tanh(z/softcap)/τ, and tanh."""
    bend = raw
    if SOFTCAP:
        bend = tanh(raw / softcap)
        raw = bend * softcap
    return raw * inv_temperature, bend


@triton.jit
def policy_rows_kernel(
    logits,
    targets,
    weights,
    old_logprobs,
    advantages,
    ref_logprobs,
    corrections,
    sequence_log_ratios,
    thresholds,
    dlogps,
    dentropies,
    episodes,
    rewards,
    report,
    vocabulary,
    logits_stride,
    report_stride,
    group_size,
    inv_temperature,
    softcap,
    clip_low,
    clip_high,
    dual_clip,
    kl_coef,
    entropy_coef,
    epsilon,
    KIND: tl.constexpr,
    KL: tl.constexpr,
    SOFTCAP: tl.constexpr,
    HAS_DUAL: tl.constexpr,
    GRADIENT: tl.constexpr,
    ENTROPY: tl.constexpr,
    BASELINE: tl.constexpr,
    SCALE: tl.constexpr,
    GROUP: tl.constexpr,
    CLAMP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * logits_stride
    report += row
    column = tl.arange(0, BLOCK)
    target = tl.load(targets + row).to(tl.int32)
    x_y, _curve_y = _scaled(
        tl.load(logits + target).to(tl.float32), softcap, inv_temperature, SOFTCAP
    )
    top = float("-inf")
    mass = 0.0
    moment = 0.0
    threshold = float("-inf")
    if thresholds is not None:
        threshold = tl.load(thresholds + row)
        highest = tl.full([BLOCK], float("-inf"), tl.float32)
        for start in range(0, vocabulary, BLOCK):
            v = start + column
            raw = tl.load(logits + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
            x, curve = _scaled(raw, softcap, inv_temperature, SOFTCAP)
            highest = tl.maximum(highest, tl.where(v < vocabulary, x, float("-inf")))
        top = tl.max(highest, 0)
    for start in range(0, vocabulary, BLOCK):
        v = start + column
        raw = tl.load(logits + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
        x, curve = _scaled(raw, softcap, inv_temperature, SOFTCAP)
        x = tl.where(v < vocabulary, x, float("-inf"))
        if thresholds is not None:
            origin = tl.where(top == float("-inf"), 0.0, top)
            x = tl.where((x - origin >= threshold) | (v == target), x, float("-inf"))
        else:
            higher = tl.maximum(top, tl.max(x, 0))
            origin = tl.where(higher == float("-inf"), 0.0, higher)
            step = tl.where(top == float("-inf"), 0.0, top - origin)
            shrink = tl.exp(step)
            if ENTROPY:
                moment = shrink * (moment + mass * step)
            mass = shrink * mass
            top = higher
        distance = x - origin
        e = tl.exp(distance)
        mass += tl.sum(e, 0)
        if ENTROPY:
            moment += tl.sum(tl.where(x > float("-inf"), e * distance, 0.0), 0)

    alive = mass > 0
    origin = tl.where(top == float("-inf"), 0.0, top)
    inverse = tl.where(alive, 1 / mass, 0.0)
    log_mass = tl.log(tl.where(alive, mass, 1.0))
    mean = moment * inverse
    logp = tl.where(alive, (x_y - origin) - log_mass, float("-inf"))
    entropy = 0.0
    if ENTROPY:
        entropy = log_mass - mean

    loss = 0.0
    slope = 0.0
    bend = 0.0
    ratio = 0.0
    clipped = 0.0
    kl = 0.0
    if KIND == "given":
        if dlogps is not None:
            slope = tl.load(dlogps + row)
            loss += slope * logp
        if dentropies is not None:
            bend = tl.load(dentropies + row)
            loss += bend * entropy
    elif KIND != "score":
        advantage = 0.0
        if rewards is not None:
            advantage = group_advantage(
                rewards, tl.load(episodes + row), group_size, epsilon, BASELINE, SCALE, GROUP
            )
        elif advantages is not None:
            advantage = tl.load(advantages + row)
        old = 0.0
        if old_logprobs is not None:
            old = tl.load(old_logprobs + row)
        ref = 0.0
        if ref_logprobs is not None:
            ref = tl.load(ref_logprobs + row)
        correction = 1.0
        if corrections is not None:
            correction = tl.load(corrections + row)
        sequence_log_ratio = 0.0
        if sequence_log_ratios is not None:
            sequence_log_ratio = tl.load(sequence_log_ratios + row)
        loss, slope, bend, ratio, clipped, kl = token_objective(
            logp,
            entropy,
            tl.load(weights + row),
            old,
            advantage,
            ref,
            correction,
            sequence_log_ratio,
            clip_low,
            clip_high,
            dual_clip,
            kl_coef,
            entropy_coef,
            KIND,
            KL,
            old_logprobs is not None,
            HAS_DUAL,
            ref_logprobs is not None,
            CLAMP,
        )
    # steps of the address, which has 64 bits: a multiple of the stride may not fit 32
    tl.store(report, loss)
    report += report_stride
    tl.store(report, logp)
    report += report_stride
    tl.store(report, entropy)
    report += report_stride
    tl.store(report, ratio)
    report += report_stride
    tl.store(report, clipped)
    report += report_stride
    tl.store(report, kl)

    if GRADIENT:
        if (slope == 0) & (bend == 0):
            zero = tl.zeros([BLOCK], logits.dtype.element_ty)
            for start in range(0, vocabulary, BLOCK):
                v = start + column
                tl.store(logits + v, zero, mask=v < vocabulary)
        else:
            for start in range(0, vocabulary, BLOCK):
                v = start + column
                raw = tl.load(logits + v, mask=v < vocabulary, other=float("-inf")).to(tl.float32)
                x, curve = _scaled(raw, softcap, inv_temperature, SOFTCAP)
                distance = x - origin
                kept = (v < vocabulary) & (x > float("-inf"))
                if thresholds is not None:
                    kept = kept & ((distance >= threshold) | (v == target))
                p = tl.where(kept, tl.exp(distance) * inverse, 0.0)
                gradient = slope * (tl.where(v == target, 1.0, 0.0) - p)
                if ENTROPY:
                    gradient -= tl.where(kept, bend * p * (distance - mean), 0.0)
                if SOFTCAP:
                    gradient = gradient * (1 - curve * curve)
                gradient = tl.where(alive, gradient * inv_temperature, 0.0)
                tl.store(logits + v, gradient.to(logits.dtype.element_ty), mask=v < vocabulary)


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
    """The kernel behind `cpu.policy_rows_`'s signature; the gradient is complete, without a
    factor."""
    count, vocabulary = logits_TV.shape
    if logits_TV.stride(1) != 1 and vocabulary > 1:
        raise ValueError(f"a row of logits is contiguous, its stride is not {logits_TV.stride(1)}")
    if report_KT.shape != (len(REPORT), count) or report_KT.dtype != torch.float32:
        raise ValueError(f"the report is float32 ({len(REPORT)}, {count}), not {report_KT.shape}")
    if count == 0:
        return None
    given = rows.dlogp_T is not None or rows.dentropy_T is not None
    used = objective or Objective("reinforce")
    dentropy = rows.dentropy_T is not None or used.entropy_coef != 0

    def ready(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(torch.float32).contiguous()

    outcome = rows.outcome
    report = report_KT if report_KT.stride(1) == 1 else report_KT.contiguous()
    block, warps = tile(vocabulary)
    policy_rows_kernel[(count,)](
        logits_TV,
        rows.targets_T.contiguous(),
        ready(rows.weights_T),
        ready(rows.old_logprobs_T),
        ready(rows.advantages_T),
        ready(rows.ref_logprobs_T),
        ready(rows.correction_T),
        ready(rows.sequence_log_ratio_T),
        ready(rows.threshold_T),
        ready(rows.dlogp_T),
        ready(rows.dentropy_T),
        None if rows.episode_T is None else rows.episode_T.contiguous(),
        None if outcome is None else ready(outcome.rewards_B),
        report,
        vocabulary,
        logits_TV.stride(0),
        report.stride(0),
        1 if outcome is None else outcome.group_size,
        1 / temperature,
        softcap or 1.0,
        used.clip_low,
        used.clip_high,
        used.dual_clip or 1.0,
        used.kl_coef,
        used.entropy_coef,
        0.0 if outcome is None else outcome.epsilon,
        KIND=used.kind if objective is not None else "given" if given else "score",
        KL=used.kl_kind or "k3",
        SOFTCAP=softcap is not None,
        HAS_DUAL=used.dual_clip is not None,
        GRADIENT=gradient,
        ENTROPY=entropy or dentropy,
        BASELINE="mean" if outcome is None else outcome.baseline,
        SCALE="none" if outcome is None else outcome.scale,
        GROUP=1 if outcome is None else triton.next_power_of_2(outcome.group_size),
        CLAMP=CLAMP,
        BLOCK=block,
        num_warps=warps,
        enable_fp_fusion=False,
    )
    if report is not report_KT:
        report_KT.copy_(report)
    return None
