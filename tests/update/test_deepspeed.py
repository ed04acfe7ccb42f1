import numpy as np
import pytest
import torch

from harness.console import shift
from harness.identity import Version
from harness.policies.resident import Resident
from harness.round import Decision, Seed
from harness.update.deepspeed import DeepSpeed, Training
from harness.update.gates.always import Always
from harness.update.gates.finite import Finite
from harness.update.gates.kl import KL
from harness.update.gates.ratio import Ratio
from harness.update.keys import OWNED, STATEFUL
from harness.update.objectives.gspo import GSPO
from harness.update.objectives.ppo import PPO
from harness.update.schedule import Schedule

SEED = Seed("33" * 16)
STILL = 1e-30
"""A learning rate that moves no weight."""


@pytest.mark.parametrize(
    "family", [{}, {"temperature": 0.7, "top_p": 0.8}, {"top_k": 6, "min_p": 0.01}], ids=str
)
def test_before_the_first_step_every_ratio_is_one(play, update, family):
    made = play(**family)
    P = update(made.resident, lr=STILL)(made.state, made.G, SEED)
    metrics = P.report["metrics"]
    assert metrics["rollout/mismatch"] < 2e-6
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=2e-5)
    assert abs(metrics["policy/kl"]) < 1e-9
    assert metrics["policy/clip_fraction"] == 0
    assert metrics["grad_norm"] > 1e-3
    assert P.state.model.id == made.model.id


def test_without_the_kept_sets_the_ratios_would_not_be_one(play, update):
    made = play(temperature=0.7, top_p=0.8)
    arrays = {name: x for name, x in made.G.arrays.items() if name != "threshold"}
    G = type(made.G)(made.G.meta, arrays)
    P = update(made.resident, lr=STILL)(made.state, G, SEED)
    assert P.report["metrics"]["rollout/mismatch"] > 0.01


def test_a_step_is_adamw_on_the_gradient_of_the_formula(play, update):
    made = play()
    P = update(made.resident, weight_decay=0.1, clip=0.0)(made.state, made.G, SEED)
    # the first step of Adam from zero moments: g/(|g| + ε), whatever the betas
    first = {n: t / (1 - 0.9) for n, t in P.state.optimizer.tensors.items() if "exp_avg/" in n}
    for name, before in made.model.tensors.items():
        g = first[f"exp_avg/{name}"]
        decayed = before * (1 - 1e-3 * 0.1) if before.dim() > 1 else before
        expected = decayed - 1e-3 * g / (g.abs() + 1e-8)
        far = g.abs() > 1e-6
        assert torch.allclose(P.state.model.tensors[name][far], expected[far], atol=2e-6)
    norm = torch.stack([g.norm() for g in first.values()]).norm()
    assert P.report["metrics"]["grad_norm"] == pytest.approx(float(norm), rel=1e-4)


def test_the_norm_is_clipped(play, update):
    made = play()
    P = update(made.resident, clip=0.01)(made.state, made.G, SEED)
    first = [t / (1 - 0.9) for n, t in P.state.optimizer.tensors.items() if "exp_avg/" in n]
    assert float(torch.stack([g.norm() for g in first]).norm()) == pytest.approx(0.01, rel=1e-3)
    assert P.report["metrics"]["grad_norm"] > 0.01


def held(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_reject_restores_every_bit(play, update, dtype, spill, tmp_path):
    made = play(dtype)
    more = {"spill": str(tmp_path) if spill else None}
    accept, reject = update(made.resident, **more), update(made.resident, "reject", **more)
    state = accept(made.state, made.G, SEED).state
    own, exact = made.copies(state), state.exact()
    P = reject(state, made.G, SEED.fold("again"))
    assert P.decision is Decision.REJECT
    assert P.state.exact() != exact
    # the engine holds the starting state again: its own tensors hash to its identifiers
    engine = reject.resident.caches[next(iter(reject.resident.caches))]
    assert engine.propose().exact() == exact
    for name, tensor in held(engine.module).items():
        assert torch.equal(tensor, own.model.tensors[name])
    assert P.state.optimizer.meta["step"] == 2
    assert engine.step_count == own.optimizer.meta["step"] == 1
    # and a rejected round leaves no trace in the next
    after = reject(state, made.G, SEED).state.exact()
    assert after == update(Resident())(own, made.G, SEED).state.exact()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_engine_that_is_loaded_again_proposes_the_same(play, update, dtype):
    made = play(dtype)
    U = update(made.resident)
    first = U(made.state, made.G, SEED).state
    own = made.copies(first)
    second = U(first, made.G, SEED.fold("b")).state.exact()
    for held_there, copy in ((first.model, own.model), (first.optimizer, own.optimizer)):
        assert held_there.shapes == {n: tuple(t.shape) for n, t in copy.tensors.items()}
    engine = made.resident.caches[next(iter(made.resident.caches))]
    engine.forget()
    assert U(own, made.G, SEED.fold("b")).state.exact() == second
    assert update(Resident())(own, made.G, SEED.fold("b")).state.exact() == second


def test_the_model_is_the_cast_of_its_masters(play, update):
    made = play("bfloat16")
    U, state = update(made.resident, lr=1e-4), made.state
    for n in range(3):
        state = U(state, made.G, SEED.fold(n)).state
    tensors = state.optimizer.tensors
    moved = 0
    for name, weight in state.model.tensors.items():
        master = tensors[f"master/{name}"]
        assert master.dtype == torch.float32
        assert torch.equal(master.to(torch.bfloat16), weight)
        moved += int((master != weight.float()).sum())
    assert moved > 0
    assert state.optimizer.meta == {"algorithm": "adamw", "step": 3, "master": "float32"}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_stage_of_zero_is_a_function_of_the_state(play, update, dtype, stage):
    made = play(dtype)
    keys = {"zero_optimization": {"stage": stage}}
    resident = Resident()
    U = update(resident, deepspeed=keys)
    first = U(made.state, made.G, SEED).state
    own = made.copies(first)
    for name, weight in own.model.tensors.items():
        if dtype == "bfloat16":
            assert torch.equal(own.optimizer.tensors[f"master/{name}"].bfloat16(), weight)
        else:
            assert f"master/{name}" not in own.optimizer.tensors
    # a policy on the sharded module gives what one on an engine of its own gives
    logits = [
        r.policy(own.model, made.iota).open([[1, 5, 26]], [0]).logits_AV
        for r in (resident, Resident())
    ]
    assert torch.allclose(*logits, atol=1e-5 if dtype == "float32" else 0.1)
    second = U(first, made.G, SEED.fold("b")).state.exact()
    rejecting = update(Resident(), "reject", deepspeed=keys)
    assert rejecting(own, made.G, SEED.fold("b")).state.exact() == second
    assert rejecting(own, made.G, SEED.fold("b")).state.exact() == second
    plain = update(Resident())(made.state, made.G, SEED).state
    for name, tensor in plain.model.tensors.items():
        assert torch.allclose(own.model.tensors[name].float(), tensor.float(), atol=2.5e-3)
    # most entries agree far better: Adam's first step is the sign of a gradient near 0
    gaps = [own.model.tensors[n].float() - t.float() for n, t in plain.model.tensors.items()]
    assert float(torch.cat([g.abs().flatten() for g in gaps]).median()) < 1e-6


@pytest.mark.parametrize("budget", [1, 50])
def test_micro_batches_change_a_proposal_by_rounding_only(play, update, budget):
    made = play()
    few = update(Resident(), micro_tokens=budget)(made.state, made.G, SEED)
    one = update(Resident())(made.state, made.G, SEED)
    norms = [P.report["metrics"]["grad_norm"] for P in (few, one)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    for name, tensor in one.state.optimizer.tensors.items():
        scale = float(tensor.abs().max())
        gap = float((few.state.optimizer.tensors[name] - tensor).abs().max())
        assert gap <= 1e-4 * scale, name


def test_unshared_prefixes_change_a_proposal_by_rounding_only(play, update):
    made = play()
    apart = update(Resident(), share_prefixes=False)(made.state, made.G, SEED)
    shared = update(Resident())(made.state, made.G, SEED)
    assert apart.report["tokens"] > shared.report["tokens"]
    for name, tensor in shared.state.optimizer.tensors.items():
        gap = (apart.state.optimizer.tensors[name] - tensor).abs().max()
        assert float(gap) <= 1e-4 * float(tensor.abs().max()), name


def training(made, update, **settings):
    U = update(made.resident, lr=STILL, **settings)
    engine, state = U._engine(made.state)
    engine.load(state)
    return Training(U, engine, made.G)


def test_minibatches_deal_whole_groups_by_the_seed(play, update):
    run = training(play(), update, minibatches=2)
    deals = set()
    for n in range(8):
        parts = run.parts(SEED.fold(n))
        assert len(parts) == 2
        assert np.array_equal(parts[0] | parts[1], run.live_T)
        assert not (parts[0] & parts[1]).any()
        offsets = run.G.arrays["episode_offsets"]
        groups = [
            {b // 4 for b in range(12) if part[offsets[b] : offsets[b + 1]].any()} for part in parts
        ]
        assert not groups[0] & groups[1]
        deals.add(str(groups))
        again = run.parts(SEED.fold(n))
        assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    assert len(deals) > 1


def test_minibatches_average_to_the_whole_batch(play, update):
    made = play()
    whole = training(made, update)
    whole.step(whole.live_T)
    parts, losses = training(made, update, minibatches=3), []
    for part in parts.parts(SEED):
        parts.step(part)
        losses.append(parts.loss)
    assert sum(losses) / 3 == pytest.approx(whole.loss, rel=1e-5)


def test_epochs_and_minibatches_are_steps(play, update):
    # group 1 has no credit: its minibatch has no row and takes no step
    made = play()
    P = update(made.resident, epochs=2, minibatches=3, lr=1e-4)(made.state, made.G, SEED)
    assert P.report["steps"] == 4 == P.state.optimizer.meta["step"]
    other = update(made.resident, epochs=2, minibatches=3, lr=1e-4)
    assert other(made.state, made.G, SEED).state.exact() == P.state.exact()
    assert other(made.state, made.G, SEED.fold("x")).state.exact() != P.state.exact()


def test_the_rate_follows_the_step_counter_of_the_state(play, update):
    made = play()
    U = update(made.resident, schedule=Schedule(warmup=4))
    state, rates = made.state, []
    for n in range(5):
        P = U(state, made.G, SEED.fold(n))
        rates.append(P.report["metrics"]["update/lr"])
        state = P.state
    assert rates == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])
    # what moves a weight in the first step is at most the rate
    first = U(made.state, made.G, SEED).state
    gaps = [(first.model.tensors[n] - t).abs().max() for n, t in made.model.tensors.items()]
    assert float(max(gaps)) == pytest.approx(2.5e-4, rel=0.01)


def test_credit_of_nothing_takes_no_step(play, update):
    made = play()
    G = made.G.replace({}, advantages=np.zeros_like(made.G.arrays["advantages"]))
    P = update(made.resident)(made.state, G, SEED)
    assert (P.report["steps"], P.report["tokens"], P.report["rows"]) == (0, 0, 0)
    assert P.state.exact() == made.state.exact()
    assert P.report["metrics"]["grad_norm"] == 0


def test_what_is_not_scored_after_is_no_other_proposal(play, update):
    made = play()
    with_it, without = (
        update(made.resident, score_after=after)(made.state, made.G, SEED)
        for after in (True, False)
    )
    assert with_it.state.model.id == without.state.model.id
    assert (without.report["tokens_scored"], with_it.report["tokens_scored"] > 0) == (0, True)
    lost = set(with_it.report["metrics"]) - set(without.report["metrics"])
    assert lost == {"policy/kl", "policy/entropy", "policy/ratio_max"}
    U = update(made.resident, score_after=False)
    assert U.most(made.G)["tokens_scored"] == 0
    assert "grad norm 0.5" in shift({"grad_norm": 0.5})
    assert "kl" in shift(with_it.report["metrics"])


@pytest.mark.parametrize("gate", [KL(), Ratio()])
def test_a_gate_of_what_is_not_scored_is_refused(gate):
    message = "update.score_after is false, and update.gates.far reads what it finds; leave it"
    with pytest.raises(ValueError, match=message):
        DeepSpeed(objective=PPO(), gates={"far": gate}, score_after=False)


def test_two_passes_and_a_correction_propose_too(play, update):
    made = play()
    for objective in (GSPO(), PPO(correction="truncate"), PPO(entropy_coef=0.01)):
        P = update(made.resident, objective=objective)(made.state, made.G, SEED)
        assert P.report["steps"] == 1
        assert 0 < P.report["metrics"]["grad_norm"] < float("inf")
        assert P.state.model.id != made.model.id


def test_a_proposal_that_is_not_finite_is_rejected_and_leaves_nothing_behind(play, update):
    made = play()
    G = made.G.replace({}, logprobs=np.where(made.G.arrays["is_action"], np.nan, 0).astype("f4"))
    U = update(made.resident, gates={"finite": Finite()})
    P = U(made.state, G, SEED)
    assert P.decision is Decision.REJECT
    (verdict,) = P.report["gates"]
    assert verdict["numbers"]["loss"] == "nan"
    after = U(made.state, made.G, SEED)
    assert after.decision is Decision.ACCEPT
    assert after.state.exact() == update(Resident())(made.state, made.G, SEED).state.exact()


def test_a_recorded_state_outlives_the_engine_only_as_a_copy(play, update):
    made = play()
    U = update(made.resident)
    first = U(made.state, made.G, SEED).state
    second = U(first, made.G, SEED).state
    third = U(second, made.G, SEED).state
    with pytest.raises(KeyError, match="no longer holds the state"):
        first.model.tensors  # noqa: B018
    assert second.model.tensors.keys() == third.model.tensors.keys()


def test_a_module_that_took_another_model_does_not_pass_for_its_state(play, update):
    made = play()
    first = update(made.resident)(made.state, made.G, SEED).state
    made.resident.load(made.model)
    with pytest.raises(KeyError, match="no longer holds the state"):
        first.model.tensors  # noqa: B018


def test_how_the_rollout_attended_does_not_reach_the_update(play, update):
    made = play(attention="eager")
    assert made.resident.module.config._attn_implementation == "eager"
    after = update(made.resident)(made.state, made.G, SEED).state.exact()
    assert update(Resident())(made.state, made.G, SEED).state.exact() == after
    eager = update(Resident(), attention="eager")(made.state, made.G, SEED).state.exact()
    assert eager != after


def test_the_version_is_that_of_the_settings_and_not_of_the_engine(play, update):
    one, two = update(Resident()), update(Resident())
    assert Version.of(one) == Version.of(two)
    assert Version.of(update(None, lr=2e-3)) != Version.of(one)
    assert Version.of(update(None, deepspeed={"zero_optimization": {"stage": 2}})) != Version.of(
        one
    )


def refused(message, **settings):
    given = {"objective": PPO(), "gates": {"always": Always()}} | settings
    with pytest.raises(ValueError, match=message):
        DeepSpeed(**given)


@pytest.mark.parametrize("key", OWNED)
def test_keys_that_the_harness_owns_are_refused(key):
    refused(
        f"update.deepspeed.{key} belongs to the harness; use update's own keys", deepspeed={key: 1}
    )


@pytest.mark.parametrize("key", STATEFUL)
def test_keys_that_keep_state_elsewhere_are_refused(key):
    message = rf"update.deepspeed.{key} keeps state outside \(M, s\); leave it out"
    refused(message, deepspeed={key: {"enabled": True}})


@pytest.mark.parametrize("name", ["epochs", "minibatches", "micro_tokens", "threads"])
def test_counts_below_one_are_refused(name):
    refused(f"update.{name} is 0; it is at least 1", **{name: 0})


def test_other_settings_that_cannot_be_are_refused():
    refused("update.lr is 0.0; it is a positive number", lr=0.0)
    refused("update.clip is -1.0 and weight_decay 0.0; neither is negative", clip=-1.0)
    refused("update.gates is empty; choose at least one", gates={})


def test_clipping_and_precision_are_the_harness_own():
    assert {"gradient_clipping", "bf16", "zero_allow_untested_optimizer"} <= set(OWNED)


def test_checkpointing_gives_the_same_numbers(play, update):
    found = []
    for on in (False, True):
        game = play()
        found.append(update(game.resident, checkpointing=on)(game.state, game.G, Seed("33" * 16)))
    assert found[0].state.exact() == found[1].state.exact()
    assert found[0].report["metrics"] == found[1].report["metrics"]
