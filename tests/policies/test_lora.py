import json
import sys

import pytest
import torch

from harness.identity import settings
from harness.policies.adapter import merged, write_adapter
from harness.policies.lora import Lora
from harness.policies.model import build_module, read_folder, write_folder
from harness.policies.partial import Partial
from harness.policies.tiny import Tiny

IDS = torch.tensor([[1, 5, 26, 27, 7]])
TINY = Tiny(hidden=32, heads=2, intermediate=64)


def trained(model):
    """The model with tensors that training could have given it."""
    torch.manual_seed(0)
    return model.with_tensors({n: t + 0.2 * torch.randn_like(t) for n, t in model.tensors.items()})


def test_the_artifact_is_the_base_and_the_adapter():
    model, base = Lora(TINY).initial(), TINY.initial()
    assert model.meta["base"] == model.base.id == base.id
    layer = "model.layers.0.self_attn.q_proj"
    assert {n: tuple(t.shape) for n, t in model.tensors.items() if layer in n} == {
        f"{layer}.lora_A.weight": (8, 32), f"{layer}.lora_B.weight": (32, 8),
    }  # fmt: skip
    assert len(model.tensors) == 2 * 2 * 2
    assert Lora(TINY).initial().id == model.id
    others = [
        Lora(TINY, rank=4), Lora(TINY, alpha=8.0), Lora(TINY, rslora=True), Lora(TINY, seed=1),
        Lora(TINY, targets=("q_proj",)), Lora(Tiny(hidden=32, heads=2, intermediate=64, seed=1)),
    ]  # fmt: skip
    assert len({model.id, base.id, *(kind.initial().id for kind in others)}) == 8
    assert trained(model).id != model.id
    assert json.loads(json.dumps(settings(Lora(TINY))))["map"] == "policies.lora@1"


def test_an_adapter_changes_nothing_at_first():
    model = Lora(TINY, targets=("all-linear",)).initial()
    assert "lm_head" not in str(model.tensors.keys())
    assert model.meta["adapter"]["targets"] == sorted(
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    assert torch.equal(build_module(model)(IDS).logits, build_module(model.base)(IDS).logits)
    bound = 32**-0.5
    A = model.tensors["model.layers.1.self_attn.v_proj.lora_A.weight"]
    assert 0.9 * bound < float(A.abs().max()) < bound


def test_a_module_adds_the_scaled_product():
    for rslora, scale in ((False, 16 / 4), (True, 16 / 2)):
        model = trained(Lora(TINY, rank=4, targets=("o_proj",), rslora=rslora).initial())
        tensors = dict(model.base.tensors)
        for name in [n for n in tensors if n.endswith("o_proj.weight")]:
            layer = name.removesuffix(".weight")
            A, B = (model.tensors[f"{layer}.lora_{part}.weight"] for part in "AB")
            tensors[name] = tensors[name] + scale * B @ A
        expected = build_module(model.base.with_tensors(tensors))(IDS).logits
        assert torch.allclose(build_module(model)(IDS).logits, expected, atol=2e-5)


def test_building_a_module_draws_nothing_and_shares_memory():
    model, before = Lora(TINY).initial(), torch.get_rng_state()
    module = build_module(model)
    assert torch.equal(torch.get_rng_state(), before)
    name = "model.layers.0.self_attn.q_proj"
    layer = module.get_submodule(name)
    assert layer.base_layer.weight.data_ptr() == model.base.tensors[f"{name}.weight"].data_ptr()
    own = model.tensors[f"{name}.lora_A.weight"]
    assert layer.lora_A["default"].weight.data_ptr() == own.data_ptr()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_merged_folder_computes_the_same_in_transformers(tmp_path, dtype):
    from transformers import AutoModelForCausalLM

    tiny = Tiny(hidden=32, heads=2, intermediate=64, dtype=dtype)
    for kind in (Lora(tiny, targets=("all-linear",)), Partial(tiny, train=("model.layers.1.*",))):
        model = trained(kind.initial())
        folder = write_folder(model, tmp_path / type(kind).__name__)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").requires_grad_(False)
        assert theirs.dtype == getattr(torch, dtype)
        gap = (theirs(IDS).logits - build_module(model)(IDS).logits).float().abs().max()
        assert float(gap) < (2e-5 if dtype == "float32" else 0.2)
        moved = (build_module(model)(IDS).logits - build_module(model.base)(IDS).logits).abs().max()
        assert float(moved) > 0.5
        plain = read_folder(folder, dtype=dtype)
        assert plain.id == merged(model).id
        assert plain.base is None


def test_a_folder_of_the_adapter_computes_the_same_in_peft(tmp_path):
    import peft
    from transformers import AutoModelForCausalLM

    model = trained(Lora(TINY, rslora=True, targets=("q_proj", "down_proj")).initial())
    base = write_folder(model.base, tmp_path / "base")
    folder = write_adapter(model, tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
    assert torch.equal(theirs(IDS).logits, build_module(model)(IDS).logits)
    with pytest.raises(ValueError, match=r"^this model has no adapter; leave out --adapter$"):
        write_adapter(model.base, tmp_path / "none")


def test_a_critic_on_the_base_is_trained_with_the_adapter(tmp_path):
    critical = Tiny(hidden=32, heads=2, intermediate=64, critic=True)
    model = Lora(critical).initial()
    assert Lora(critical).critic
    assert {"value_head.weight", "value_head.bias"} < set(model.tensors)
    assert build_module(trained(model)).value_head.weight.abs().max() > 0
    back = read_folder(write_folder(trained(model), tmp_path))
    assert torch.equal(back.tensors["value_head.bias"], trained(model).tensors["value_head.bias"])


def test_layers_that_lie_transposed_are_adapted_too(tmp_path):
    from transformers import AutoModelForCausalLM, GPT2Config

    from harness.policies.model import Model, architecture_of, tensors_of

    config = GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(config)
    base = Model.of(architecture_of(config), TINY.initial().files, tensors_of(module))

    class Given:
        def initial(self):
            return base

    # c_proj of attention is square: its shape does not say how it lies
    model = trained(Lora(Given(), targets=("c_attn", "c_proj")).initial())
    theirs = AutoModelForCausalLM.from_pretrained(write_folder(model, tmp_path))
    assert torch.allclose(theirs(IDS).logits, build_module(model)(IDS).logits, atol=2e-5)


def test_what_cannot_be_adapted_is_refused():
    there = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"
    for target, what in [("nope", "no layer of"), ("lm_head", "no linear layer within it"),
                         ("norm", "no linear layer within it")]:  # fmt: skip
        with pytest.raises(ValueError, match=f"names '{target}', which is {what}.* are {there}"):
            Lora(TINY, targets=(target,)).initial()
    with pytest.raises(ValueError, match=r"^model.rank is 0; it is at least 1$"):
        Lora(TINY, rank=0)
    with pytest.raises(ValueError, match=r"^model.alpha is 0.0; it is a positive number$"):
        Lora(TINY, alpha=0.0)
    with pytest.raises(ValueError, match=r"^model.targets is \[\]; it is names of layers, or"):
        Lora(TINY, targets=())
    with pytest.raises(ValueError, match=r"^model.base is 3, which gives no model; choose one"):
        Lora(3)


def test_a_missing_peft_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    message = (
        r"^the model has a LoRA adapter, and peft is not installed; `pip install 'harness\[lora\]'`"
    )
    with pytest.raises(ValueError, match=message):
        Lora(TINY).initial()
