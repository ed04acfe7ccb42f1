"""Updates of models on a base: adapters, and tensors that are trained among frozen ones."""

import pytest
import torch

from harness.policies.lora import Lora
from harness.policies.model import Model, build_module
from harness.policies.partial import Partial
from harness.policies.resident import Resident
from harness.round import Decision, Seed
from harness.store import Store

SEED = Seed("55" * 16)
KINDS = {
    "lora": lambda tiny: Lora(tiny, rank=4, targets=("q_proj", "v_proj", "down_proj")),
    # the embedding is the output layer too: a tied weight that is trained
    "tied": lambda tiny: Partial(tiny, train=("model.embed_tokens.weight", "model.layers.1.*")),
    # and one that is not
    "frozen": lambda tiny: Partial(tiny, train=("model.layers.0.mlp.*", "model.norm.weight")),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_before_the_first_step_every_ratio_is_one(play, update, kind, dtype):
    made = play(dtype, on=kind)
    metrics = update(made.resident, lr=1e-30)(made.state, made.G, SEED).report["metrics"]
    assert metrics["rollout/mismatch"] < (2e-6 if dtype == "float32" else 3e-2)
    assert metrics["grad_norm"] > 1e-3
    # the rollout of an adapted model after an update, with the adapter in place
    after = update(made.resident)(made.state, made.G, SEED).state
    policy = made.resident.policy(after.model, made.iota)
    logits = policy.open([[1, 5, 26, 27]], [0]).logits_AV[0]
    own = build_module(made.copies(after).model, attention="sdpa")
    expected = own(torch.tensor([[1, 5, 26, 27]])).logits[0, -1].float()
    assert torch.allclose(logits, expected, atol=1e-5 if dtype == "float32" else 0.2)
    start = build_module(made.model)(torch.tensor([[1, 5, 26, 27]])).logits[0, -1].float()
    assert not torch.allclose(logits, start, atol=1e-4)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_stage_of_zero_trains_the_same_tensors_alone(play, update, kind, dtype, stage):
    made = play(dtype, on=kind)
    base = {name: t.clone() for name, t in made.model.base.tensors.items()}
    keys = {"zero_optimization": {"stage": stage}}
    resident = Resident()
    U = update(resident, deepspeed=keys)
    first = U(made.state, made.G, SEED).state
    assert first.model.base is made.model.base
    assert first.model.tensors.keys() == made.model.tensors.keys()
    assert {n.partition("/")[2] for n in first.optimizer.tensors} == set(made.model.tensors)
    own = made.copies(first)
    gaps = [(own.model.tensors[n] - t).abs().max() for n, t in made.model.tensors.items()]
    assert float(min(gaps)) >= 0
    assert float(max(gaps)) > 1e-4
    # no number of the base has changed, in the artifact or in the module
    for name, tensor in made.model.base.tensors.items():
        assert torch.equal(tensor, base[name]), name
    # loaded afresh, rejected and loaded again: the same identifiers
    second = U(first, made.G, SEED.fold("b")).state.exact()
    rejecting = update(Resident(), "reject", deepspeed=keys)
    P = rejecting(own, made.G, SEED.fold("b"))
    assert (P.decision, P.state.exact()) == (Decision.REJECT, second)
    engine = next(iter(rejecting.resident.caches.values()))
    assert engine.propose().exact() == first.exact()
    engine.forget()
    assert rejecting(own, made.G, SEED.fold("b")).state.exact() == second
    # what another stage made is as good a start
    plain = update(Resident())(made.state, made.G, SEED).state
    names = [n for n, t in plain.model.tensors.items() if not n.endswith("lora_A.weight")]
    gaps = [own.model.tensors[n].float() - plain.model.tensors[n].float() for n in names]
    assert float(torch.cat([g.abs().flatten() for g in gaps]).median()) < 1e-6


def test_the_gradient_of_a_frozen_model_is_the_whole_models(play, update):
    """What is trained moves as it does where everything is."""
    made, whole = play(on=KINDS["frozen"]), play()
    some = update(made.resident, clip=0.0)(made.state, made.G, SEED).state
    every = update(whole.resident, clip=0.0)(whole.state, whole.G, SEED).state
    moments = every.optimizer.tensors
    assert len(moments) > len(some.optimizer.tensors)
    for name, tensor in some.optimizer.tensors.items():
        scale = float(moments[name].abs().max())
        assert float((tensor - moments[name]).abs().max()) <= 1e-5 * scale, name


def test_an_adapter_learns_the_gradient_through_its_base(play, update):
    """∂B = s·∂W Aᵀ, ∂A = s·Bᵀ ∂W = 0 at first, of the ∂W that the whole model has."""
    made, whole = play(on=KINDS["lora"]), play()
    moments = update(made.resident, clip=0.0)(made.state, made.G, SEED).state.optimizer.tensors
    every = update(whole.resident, clip=0.0)(whole.state, whole.G, SEED).state.optimizer.tensors
    for name, A in made.model.tensors.items():
        if not name.endswith(".lora_A.weight"):
            continue
        layer = name.removesuffix(".lora_A.weight")
        dW = every[f"exp_avg/{layer}.weight"]
        dB = moments[f"exp_avg/{layer}.lora_B.weight"]
        expected = 16.0 / 4 * dW @ A.T
        gap = float((dB - expected).abs().max())
        assert gap <= 1e-5 * float(expected.abs().max()), layer
        assert float(moments[f"exp_avg/{name}"].abs().max()) == 0


def test_checkpointing_gives_the_same_numbers(play, update, kind):
    found = []
    for on in (False, True):
        made = play(on=kind)
        found.append(update(made.resident, checkpointing=on)(made.state, made.G, SEED))
    assert found[0].state.exact() == found[1].state.exact()


def test_a_state_is_stored_without_the_bytes_of_its_base(play, update, kind, tmp_path):
    made, store = play(on=kind), Store(str(tmp_path))
    store.put(made.model)
    state = update(made.resident)(made.state, made.G, SEED).state
    store.put(state.model)
    store.put(state.optimizer)
    assert len(list(tmp_path.glob("model/*/*/*.safetensors"))) == 3
    with store.path("model", state.model.id) as path:
        stored = path.stat().st_size
    with store.path("model", made.model.base.id) as path:
        assert stored < path.stat().st_size * 0.95
    back = store.get(Model, state.model.id, check=True)
    assert back.base.id == made.model.base.id
    assert store.get(Model, state.model.id, held=made.model.base).base is made.model.base
    a, b = (build_module(m)(torch.tensor([[1, 5, 26]])).logits for m in (back, state.model))
    assert torch.equal(a, b)
    store.delete("model", made.model.base.id)
    with pytest.raises(KeyError, match="is not in the store"):
        store.get(Model, state.model.id)
