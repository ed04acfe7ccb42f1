"""Credit and objective in Triton: one program a trajectory, no atomics, sums in a fixed order.

The program walks its trajectory from the end in blocks. Lane 0 of a block is its last token, so the
reverse recursion y_t = b_t + a_t·y_{t+1} is a forward scan over lanes under

    (a₁, b₁) then (a₂, b₂)  =  (a₁·a₂, b₂ + a₂·b₁)

and the value at the last lane is carried into the next block. Lanes before the trajectory and
tokens that are no actions are the identity (1, 0). V(t⁺) is itself such a recursion, over entries
shifted by one token with the bootstrap value at the end, so nothing is ever read from the next
trajectory. Group statistics are recomputed by each program from its group's few rewards.
"""

# kernels are untyped: triton traces them
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..policy_rows import Objective
from ..policy_rows.fused import group_advantage, token_objective
from ..policy_rows.reference import CLAMP
from .reference import SUMS, Credit, Evaluation, Packed, check, known_loss

BLOCK = 1024
WARPS = 8


@triton.jit
def _compose(a_1, b_1, a_2, b_2):
    """The recursion of two stretches, the first of which comes first in the scan."""
    return a_1 * a_2, b_2 + a_2 * b_1


@triton.jit
def _scan(a, b, carry):
    """y = b + a·(y of the lane before), starting from the carry."""
    a, b = tl.associative_scan((a, b), 0, _compose)
    return b + a * carry


@triton.jit
def _last(y, lane, BLOCK: tl.constexpr):
    return tl.sum(tl.where(lane == BLOCK - 1, y, 0.0), 0)


@triton.jit
def credit_objective_kernel(
    offsets,
    mask,
    rewards,
    values,
    bootstrap,
    discounts,
    logps,
    old_logprobs,
    ref_logprobs,
    corrections,
    weights,
    outcomes,
    advantages,
    returns,
    dlogps,
    sums,
    sums_stride,
    group_size,
    gamma,
    lam,
    rho_clip,
    c_clip,
    clip_low,
    clip_high,
    dual_clip,
    kl_coef,
    epsilon,
    CREDIT: tl.constexpr,
    KIND: tl.constexpr,
    KL: tl.constexpr,
    HAS_DUAL: tl.constexpr,
    BASELINE: tl.constexpr,
    SCALE: tl.constexpr,
    GROUP: tl.constexpr,
    CLAMP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    episode = tl.program_id(0)
    start = tl.load(offsets + episode).to(tl.int64)
    end = tl.load(offsets + episode + 1).to(tl.int64)
    length = (end - start).to(tl.int32)
    lane = tl.arange(0, BLOCK)

    boot = 0.0
    if bootstrap is not None:
        boot = tl.load(bootstrap + episode)
    carry = 0.0
    if CREDIT == "returns":
        carry += boot
    ahead_carry = 0.0
    given = 0.0
    if CREDIT == "outcome":
        given = group_advantage(outcomes, episode, group_size, epsilon, BASELINE, SCALE, GROUP)

    sequence_log_ratio = 0.0
    if KIND == "gspo_token":
        gaps = tl.zeros([BLOCK], tl.float32)
        actions = tl.zeros([BLOCK], tl.float32)
        for done in range(0, length, BLOCK):
            t = end - 1 - done - lane
            action = tl.load(mask + t, mask=t >= start, other=0) != 0
            gap = tl.load(logps + t, mask=action, other=0.0)
            gap -= tl.load(old_logprobs + t, mask=action, other=0.0)
            gaps += gap
            actions += action.to(tl.float32)
        sequence_log_ratio = tl.sum(gaps, 0) / tl.maximum(tl.sum(actions, 0), 1.0)

    sum_loss = tl.zeros([BLOCK], tl.float32)
    sum_kl = tl.zeros([BLOCK], tl.float32)
    sum_clipped = tl.zeros([BLOCK], tl.float32)
    sum_ratio = tl.zeros([BLOCK], tl.float32)
    sum_actions = tl.zeros([BLOCK], tl.float32)
    for done in range(0, length, BLOCK):
        t = end - 1 - done - lane
        inside = t >= start
        action = tl.load(mask + t, mask=inside, other=0) != 0
        logp = tl.zeros([BLOCK], tl.float32)
        old = tl.zeros([BLOCK], tl.float32)
        if logps is not None:
            logp = tl.load(logps + t, mask=action, other=0.0)
        if old_logprobs is not None:
            old = tl.load(old_logprobs + t, mask=action, other=0.0)
        if CREDIT == "outcome":
            advantage = tl.where(action, given, 0.0)
            target = advantage
        else:
            reward = tl.load(rewards + t, mask=action, other=0.0)
            value = tl.zeros([BLOCK], tl.float32)
            if values is not None:
                value = tl.load(values + t, mask=action, other=0.0)
            discount = tl.full([BLOCK], 1.0, tl.float32) * gamma
            if discounts is not None:
                discount = discount * tl.load(discounts + t, mask=action, other=1.0)
            if CREDIT == "returns":
                y = _scan(tl.where(action, discount, 1.0), reward, carry)
                target = y
                advantage = target - value
            else:
                follows = inside & (t + 1 < end)
                next_action = tl.load(mask + t + 1, mask=follows, other=0) != 0
                next_value = tl.load(values + t + 1, mask=next_action, other=0.0)
                final = inside & (t + 1 == end)
                ahead = _scan(
                    tl.where(next_action | final, 0.0, 1.0),
                    tl.where(final, boot, next_value),
                    ahead_carry,
                )
                ahead_carry = _last(ahead, lane, BLOCK)
                delta = reward + discount * ahead - value
                trace = discount * lam
                if CREDIT == "gae":
                    y = _scan(tl.where(action, trace, 1.0), tl.where(action, delta, 0.0), carry)
                    advantage = y
                    target = y + value
                else:
                    ratio = tl.exp(tl.minimum(tl.maximum(logp - old, -CLAMP), CLAMP))
                    rho = tl.minimum(ratio, rho_clip)
                    trace = trace * tl.minimum(ratio, c_clip)
                    y = _scan(
                        tl.where(action, trace, 1.0), tl.where(action, rho * delta, 0.0), carry
                    )
                    after = tl.gather(y, tl.maximum(lane - 1, 0), 0)
                    after = tl.where(lane == 0, carry, after)
                    target = value + y
                    advantage = rho * (delta + discount * after)
            carry = _last(y, lane, BLOCK)
        advantage = tl.where(action, advantage, 0.0)
        tl.store(advantages + t, advantage, mask=inside)
        tl.store(returns + t, tl.where(action, target, 0.0), mask=inside)
        if KIND != "none":
            weight = tl.load(weights + t, mask=action, other=0.0)
            correction = tl.full([BLOCK], 1.0, tl.float32)
            if corrections is not None:
                correction = tl.load(corrections + t, mask=action, other=1.0)
            ref = tl.zeros([BLOCK], tl.float32)
            if ref_logprobs is not None:
                ref = tl.load(ref_logprobs + t, mask=action, other=0.0)
            loss, slope, _, ratio, clipped, kl = token_objective(
                logp,
                tl.zeros([BLOCK], tl.float32),
                weight,
                old,
                advantage,
                ref,
                correction,
                tl.zeros([BLOCK], tl.float32) + sequence_log_ratio,
                clip_low,
                clip_high,
                dual_clip,
                kl_coef,
                0.0,
                KIND,
                KL,
                old_logprobs is not None,
                HAS_DUAL,
                ref_logprobs is not None,
                CLAMP,
            )
            tl.store(dlogps + t, slope, mask=inside)
            sum_loss += loss
            sum_kl += tl.where(action, kl, 0.0)
            sum_clipped += tl.where(action, clipped, 0.0)
            sum_ratio += tl.where(action, ratio, 0.0)
            sum_actions += action.to(tl.float32)
    if KIND != "none":
        # steps of the address, which has 64 bits: a multiple of the stride may not fit 32
        sums += episode
        tl.store(sums, tl.sum(sum_loss, 0))
        sums += sums_stride
        tl.store(sums, tl.sum(sum_kl, 0))
        sums += sums_stride
        tl.store(sums, tl.sum(sum_clipped, 0))
        sums += sums_stride
        tl.store(sums, tl.sum(sum_ratio, 0))
        sums += sums_stride
        tl.store(sums, tl.sum(sum_actions, 0))


def credit_objective(
    packed: Packed, credit: Credit, objective: Objective | None = None
) -> Evaluation:
    """The kernel behind `reference.credit_objective`'s signature."""
    check(packed, credit, objective)
    tokens, episodes = packed.mask_T.shape[0], packed.offsets_B1.shape[0] - 1

    def ready(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.detach().to(torch.float32).contiguous()

    device = packed.mask_T.device
    advantages_T, returns_T, dlogp_T = torch.empty((3, tokens), device=device)
    sums_KB = torch.empty((len(SUMS), episodes), device=device)
    used = objective or Objective("reinforce")
    outcome = packed.outcome
    if episodes:
        credit_objective_kernel[(episodes,)](
            packed.offsets_B1.contiguous(),
            packed.mask_T.to(torch.int8).contiguous(),
            ready(packed.rewards_T),
            ready(packed.values_T),
            ready(packed.bootstrap_B),
            ready(packed.discount_T),
            ready(packed.logp_T),
            ready(packed.old_logprobs_T),
            ready(packed.ref_logprobs_T),
            ready(packed.correction_T),
            ready(packed.weights_T),
            None if outcome is None else ready(outcome.rewards_B),
            advantages_T,
            returns_T,
            dlogp_T,
            sums_KB,
            sums_KB.stride(0),
            1 if outcome is None else outcome.group_size,
            credit.gamma,
            credit.lam,
            credit.rho_clip,
            credit.c_clip,
            used.clip_low,
            used.clip_high,
            used.dual_clip or 1.0,
            used.kl_coef,
            0.0 if outcome is None else outcome.epsilon,
            CREDIT=credit.kind,
            KIND="none" if objective is None else objective.kind,
            KL=used.kl_kind or "k3",
            HAS_DUAL=used.dual_clip is not None,
            BASELINE="mean" if outcome is None else outcome.baseline,
            SCALE="none" if outcome is None else outcome.scale,
            GROUP=1 if outcome is None else triton.next_power_of_2(outcome.group_size),
            CLAMP=CLAMP,
            BLOCK=BLOCK,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    if objective is None:
        return Evaluation(advantages_T, returns_T, None, None, None)
    assert packed.logp_T is not None
    loss = known_loss(packed.logp_T, dlogp_T, sums_KB)
    return Evaluation(advantages_T, returns_T, loss, dlogp_T, sums_KB)
