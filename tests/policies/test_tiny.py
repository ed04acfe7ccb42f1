import hashlib
import re

import pytest
import torch

from harness.policies.model import build_module, load_tokenizer, read_folder, write_folder
from harness.policies.tiny import VOCABULARY, Tiny


def test_the_same_weights_everywhere():
    # a golden value: the bits of a matrix do not depend on machine, threads or library versions
    weights = Tiny(hidden=16, heads=2).initial().tensors["model.layers.1.mlp.up_proj.weight"]
    assert hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16] == "97bfe074bcc240b0"


def test_a_matrix_does_not_depend_on_the_others():
    name = "model.layers.0.self_attn.q_proj.weight"
    deep, shallow = Tiny(layers=3).initial(), Tiny(layers=1).initial()
    assert torch.equal(deep.tensors[name], shallow.tensors[name])


def test_weights_have_the_declared_spread():
    table = Tiny(scale=0.1, hidden=128).initial().tensors["model.embed_tokens.weight"]
    assert table.std().item() == pytest.approx(0.1, rel=0.05)
    assert table.abs().max().item() <= 0.1 * 3**0.5


def test_another_seed_gives_another_model():
    assert Tiny(seed=1).initial().id != Tiny(seed=0).initial().id


def test_the_folder_is_an_ordinary_one(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = Tiny().initial()
    write_folder(model, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("vault closed <policy>", return_tensors="pt").input_ids
    assert tokenizer.convert_ids_to_tokens(ids[0]) == ["vault", "closed", "<policy>"]
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(ids).logits, build_module(model)(ids).logits)
    assert read_folder(tmp_path).id == model.id


def test_every_word_is_one_token():
    tokenizer = load_tokenizer(Tiny().initial())
    for i, word in enumerate(VOCABULARY):
        assert tokenizer.encode(word, add_special_tokens=False) == [i]
    assert tokenizer.encode("banana", add_special_tokens=False) == [tokenizer.unk_token_id]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": 0}, "model.layers is 0; it is at least 1"),
        (
            {"hidden": 90},
            "model.hidden is 90; it must be a multiple of twice model.heads 4",
        ),
        ({"scale": 0.0}, "model.scale is 0.0; it is a positive number"),
        ({"dtype": "int8"}, "model.dtype is 'int8'; it is float32 or bfloat16"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Tiny(**fields)
