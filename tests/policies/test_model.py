import json
import re

import pytest
import torch

from harness.policies.model import (
    Model,
    advice,
    architecture_of,
    build_module,
    config_of,
    read_folder,
    tensors_of,
    write_folder,
)
from harness.policies.tiny import Tiny


@pytest.fixture(scope="module")
def model():
    return Tiny(hidden=32, heads=2, intermediate=64).initial()


@pytest.fixture
def folder(model, tmp_path):
    return write_folder(model, tmp_path / "model")


def test_the_identifier_does_not_depend_on_the_layout_of_files(model, tmp_path):
    module = build_module(model)
    module.save_pretrained(tmp_path, max_shard_size="20KB")
    for name, content in model.files.items():
        (tmp_path / name).write_bytes(content)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert read_folder(tmp_path).id == model.id


def test_the_identifier_does_not_depend_on_volatile_keys(model, folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {"transformers_version": "4.0.0", "use_cache": False, "_name_or_path": "/x/y"}
    config.pop("architectures")
    path.write_text(json.dumps(config))
    assert read_folder(folder).id == model.id


def test_the_identifier_depends_on_what_is_computed(model, folder):
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    assert read_folder(folder).id != model.id
    assert read_folder(folder).meta["tokenizer"] == model.meta["tokenizer"]


def test_the_tokenizer_is_in_the_identifier_and_its_chat_template_is_not(model):
    config = json.loads(model.files["tokenizer_config.json"])
    templated = {**model.files, "chat_template.jinja": b"{{ messages }}"}
    other = json.dumps({**config, "eos_token": "<pad>"}).encode()
    architecture = model.meta["architecture"]
    assert Model.of(architecture, templated, model.tensors).id == model.id
    changed = {**model.files, "tokenizer_config.json": other}
    assert Model.of(architecture, changed, model.tensors).id != model.id


def test_padding_that_somebody_set_does_not_change_the_tokenizer(model):
    body = json.loads(model.files["tokenizer.json"])
    body["truncation"] = {"max_length": 3}
    files = {**model.files, "tokenizer.json": json.dumps(body, indent=2).encode()}
    assert Model.of(model.meta["architecture"], files, model.tensors).id == model.id


def test_a_module_shares_its_memory_and_draws_nothing(model):
    before = torch.get_rng_state()
    module = build_module(model)
    assert torch.equal(torch.get_rng_state(), before)
    tensors = tensors_of(module)
    assert list(tensors) == sorted(model.tensors)
    assert all(tensors[n].data_ptr() == t.data_ptr() for n, t in model.tensors.items())
    assert "lm_head.weight" not in tensors
    assert module.lm_head.weight.data_ptr() == tensors["model.embed_tokens.weight"].data_ptr()
    assert not module.training
    assert not any(p.requires_grad for p in module.parameters())


def test_a_module_computes_what_transformers_computes(model, folder):
    from transformers import AutoModelForCausalLM

    ids = torch.tensor([[1, 5, 26, 27, 7]])
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(theirs(ids).logits, build_module(model)(ids).logits)


def test_untied_heads_are_kept(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    module = LlamaForCausalLM(config)
    model = Model.of(architecture_of(config), Tiny().initial().files, tensors_of(module))
    assert "lm_head.weight" in model.tensors
    assert read_folder(write_folder(model, tmp_path)).id == model.id


def test_the_dtype_is_that_of_the_tensors(model, folder):
    half = read_folder(folder, dtype="bfloat16")
    assert half.id != model.id
    assert build_module(half).dtype == torch.bfloat16
    again = read_folder(write_folder(half, folder / "again"), dtype="bfloat16")
    assert again.id == half.id
    assert json.loads((folder / "again" / "config.json").read_text())["dtype"] == "bfloat16"


def test_other_tensors_make_another_model(model):
    changed = model.with_tensors({n: t + 1 for n, t in model.tensors.items()})
    assert changed.id != model.id
    assert (changed.meta, changed.files) == (model.meta, model.files)


def test_the_architecture_gives_the_configuration_back(model):
    assert architecture_of(config_of(model)) == model.meta["architecture"]


def test_tensors_that_are_not_the_architectures_are_refused(model):
    some = dict(model.tensors)
    gone = some.pop("model.norm.weight")
    with pytest.raises(
        ValueError, match=r"^the model lacks the tensor 'model.norm.weight' of its architecture$"
    ):
        build_module(model.with_tensors(some))
    with pytest.raises(
        ValueError, match=r"^the model has no place for the tensor 'extra' of its architecture$"
    ):
        build_module(model.with_tensors({**model.tensors, "extra": gone}))


def test_a_folder_that_lacks_a_tensor_is_refused(model, folder):
    from safetensors.torch import save_file

    some = {n: t for n, t in model.tensors.items() if n != "model.norm.weight"}
    save_file(some, folder / "model.safetensors", metadata={"format": "pt"})
    message = f"{folder} lacks the tensor 'model.norm.weight' of its architecture"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_folder(folder)


def test_folders_that_are_no_model_are_refused(model, folder, tmp_path):
    needed = "config.json, safetensors weights and a tokenizer"
    message = f"{tmp_path} is not a model folder; it needs {needed}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_folder(tmp_path)
    with pytest.raises(ValueError, match=r"^model.dtype is 'int8'; it is one of float32, bfloat16"):
        read_folder(folder, dtype="int8")
    (folder / "model.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match=r"cannot be loaded as a causal language model: "):
        read_folder(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"has no tokenizer; it needs tokenizer.json$"):
        read_folder(folder)


@pytest.mark.parametrize(("dtype", "native"), [("float32", False), ("bfloat16", True)])
def test_a_dtype_that_runs_natively_needs_no_advice(dtype, native, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: native)
    assert advice(Tiny(dtype=dtype).initial()) == ""


def test_an_emulated_dtype_is_said(monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "model.dtype=float32 is the faster choice" in advice(Tiny(dtype="bfloat16").initial())
