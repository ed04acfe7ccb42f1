"""Causal models that differ in head, attention, positions and names, with random weights."""

from typing import Any

import torch

from harness.policies.hf import Hf
from harness.policies.tiny import VOCABULARY, tokenizer_files

CONTEXT = 24
SHAPE = {
    "vocab_size": len(VOCABULARY), "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": CONTEXT, "initializer_range": 0.3, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": False, "attention_bias": True}),
    "gpt2": (
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "resid_pdrop": 0.1,
         "vocab_size": len(VOCABULARY), "initializer_range": 0.3, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0},
    ),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": True}),
    "gemma2": (
        "Gemma2Config",
        {"final_logit_softcapping": 3.0, "query_pre_attn_scalar": 8, "sliding_window": 64},
    ),
    "granite": ("GraniteConfig", {"logits_scaling": 4.0, "embedding_multiplier": 3.0}),
    "cohere": ("CohereConfig", {"logit_scale": 0.25}),
    # no attention at all
    "mamba": (
        "MambaConfig",
        {"vocab_size": len(VOCABULARY), "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8,
         "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    ),
    # attention that takes no mask of four dimensions
    "bloom": (
        "BloomConfig",
        {"vocab_size": len(VOCABULARY), "hidden_size": 32, "n_layer": 2, "n_head": 4,
         "initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3},
    ),
}  # fmt: skip


def made(kind: str, folder: Any) -> Any:
    """A model with random weights, through an ordinary folder."""
    import transformers
    from transformers.utils import logging

    name, own = MODELS[kind]
    config = getattr(transformers, name)(**(own if "vocab_size" in own else {**SHAPE, **own}))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = transformers.AutoModelForCausalLM.from_config(config)
    folder.mkdir(exist_ok=True)
    logging.disable_progress_bar()
    module.save_pretrained(folder)
    for file, content in tokenizer_files().items():
        (folder / file).write_bytes(content)
    return Hf(str(folder), dtype="float32").initial()
