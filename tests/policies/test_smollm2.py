import subprocess
import sys

import pytest

from harness.policies.inference import Inference
from harness.policies.model import build_module, load_tokenizer
from harness.policies.serializers.chat import Chat
from harness.policies.smollm2 import Smollm2


def test_the_model_really_talks(smollm2_folder):
    import torch

    model = Smollm2().initial()
    tokenizer = load_tokenizer(model)
    chat = Inference(Chat(tools="none")).bind(tokenizer).serializer
    module = build_module(model)
    assert module.dtype == torch.float32
    question = {"role": "user", "content": "What is 3 + 4? Answer with a number only."}
    ids, action = chat.begin(tokenizer, [question]), []
    with torch.no_grad():
        while len(action) < 12 and not set(action) & set(chat.stops(tokenizer)):
            logits = module(torch.tensor([ids + action])).logits
            action.append(int(logits[0, -1].argmax()))
    assert "7" in chat.parse(tokenizer, action).text
    assert action[-1] in chat.stops(tokenizer)


def test_digits_are_single_tokens(smollm2_folder):
    tokenizer = load_tokenizer(Smollm2().initial())
    assert len(tokenizer.encode("1457")) == 4


def test_a_folder_and_the_cache_give_the_same_model(smollm2_folder):
    assert Smollm2(path=str(smollm2_folder)).initial().id == Smollm2().initial().id


def test_loading_needs_no_gguf(smollm2_folder):
    code = (
        "import sys; sys.modules['gguf'] = None\n"
        "from harness.policies.smollm2 import Smollm2; Smollm2().initial()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_where_it_was_not_fetched_the_command_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    message = "^SmolLM2 is not on this machine; `python -m harness fetch smollm2` brings it$"
    with pytest.raises(ValueError, match=message):
        Smollm2().initial()
