import re

import pytest

from harness.policies.inference import Inference
from harness.policies.model import load_tokenizer
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny

CHANGES = {
    "temperature": 0.9, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "max_turn_tokens": 3,
    "max_turns": 2, "max_episode_tokens": 400, "context": 999, "engine": "other",
    "attention": "eager", "threads": 2, "decode_rows": 7, "prefill_rows": 3,
    "deterministic": False, "ranks": 2,
}  # fmt: skip


def test_every_setting_is_in_the_identifier():
    ids = {Inference(Plain(), **{name: value}).id for name, value in CHANGES.items()}
    assert len(ids | {Inference(Plain()).id}) == len(CHANGES) + 1
    fields = set(Inference.__dataclass_fields__) - {"serializer", "version"}
    assert fields == {*CHANGES, "dtype"}  # of one value: a model runs in its own


def test_the_identifier_has_a_golden_value():
    assert (
        Inference(Plain()).id
        == "sha256:73303b0160afabb274b7b4d275f52135eb858035e68d0f810a18c535125f6949"
    )


def test_binding_keeps_all_other_settings():
    tokenizer = load_tokenizer(Tiny().initial())
    assert Inference(Plain(), threads=3).bind(tokenizer) == Inference(Plain(), threads=3)


def test_the_sampled_family_is_named():
    assert not Inference(Plain()).truncated
    assert Inference(Plain(), top_p=0.9).truncated
    assert Inference(Plain(), top_p=0.9).sampling == {
        "temperature": 1.0, "top_k": 0, "top_p": 0.9, "min_p": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": -1}, "inference.temperature is -1; it must be 0 (greedy) or more"),
        ({"top_k": -1}, "inference.top_k is -1; it must be 0 (off) or more"),
        ({"top_p": 0.0}, "inference.top_p is 0.0; it must be in (0, 1]"),
        ({"top_p": float("nan")}, "inference.top_p is nan; it must be in (0, 1]"),
        ({"min_p": 1.0}, "inference.min_p is 1.0; it must be in [0, 1)"),
        ({"threads": 0}, "inference.threads is 0; it must be at least 1"),
        ({"max_turns": 0}, "inference.max_turns is 0; it must be at least 1"),
        ({"decode_rows": -1}, "inference.decode_rows is -1; it must be 0 (all) or more"),
        (
            {"attention": "magic"},
            "inference.attention is magic; it must be one of eager, sdpa, flash_attention_2",
        ),
        (
            {"dtype": "int8"},
            "inference.dtype is int8; it must be model: that of model.dtype",
        ),
        (
            {"max_turn_tokens": 600},
            "inference.max_turn_tokens is 600; it must be at most max_episode_tokens 512",
        ),
        (
            {"context": 500},
            "inference.max_episode_tokens is 512; it must be at most context 500",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Inference(Plain(), **fields)
