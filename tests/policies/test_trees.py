"""Shared prefixes on families of transformers, with random weights at a small size."""

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from harness.policies.resident import head_of
from harness.policies.trees import computes_trees
from harness.prefix_tree import batches, forest
from harness.update.learner import Learner

V = 40
ROTARY = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LEARNED = {
    "vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "initializer_range": 0.3,
}  # fmt: skip
PLAIN = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "initializer_range": 0.3}
SHARED = {
    "Llama": ROTARY, "Qwen2": ROTARY, "Qwen3": ROTARY, "Gemma2": ROTARY | {"sliding_window": 64},
    "Gemma3Text": ROTARY | {"sliding_window": 64}, "GPT2": LEARNED, "GPTNeoX": ROTARY,
    "Mistral": ROTARY | {"sliding_window": 64}, "Phi": ROTARY, "Phi3": ROTARY, "Olmo2": ROTARY,
    "GPTJ": LEARNED | {"rotary_dim": 4}, "Granite": ROTARY, "Cohere": ROTARY,
    "Mixtral": ROTARY | {"num_local_experts": 2}, "StableLm": ROTARY,
    "OPT": PLAIN | {"ffn_dim": 48, "num_attention_heads": 4, "word_embed_proj_dim": 32,
                    "max_position_embeddings": 64, "init_std": 0.3},
    "Falcon": PLAIN | {"num_attention_heads": 4, "alibi": False},
}  # fmt: skip
ALONE = {
    "Mamba": PLAIN | {"state_size": 8},
    "Mamba2": PLAIN | {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1,
                       "chunk_size": 8},
    "RecurrentGemma": PLAIN | {"num_hidden_layers": 3, "intermediate_size": 96, "lru_width": 32,
                               "num_attention_heads": 4},
    "Lfm2": PLAIN | {"intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
                     "layer_types": ["conv", "full_attention"]},
    "Bloom": {"vocab_size": V, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Mpt": {"vocab_size": V, "d_model": 32, "n_layers": 2, "n_heads": 4},
    # windows over places in the sequence
    "GPTNeo": {"vocab_size": V, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
               "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64},
}  # fmt: skip


def built(family):
    config = getattr(transformers, f"{family}Config")(**(SHARED | ALONE)[family])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return module.eval().float()


def episodes():
    """Two groups of three: prompts of their own, answers that share some of their first tokens."""
    draw = np.random.default_rng(0)
    rows = []
    for length in (7, 4):
        prompt, turn = draw.integers(4, V, length), draw.integers(4, V, 3)
        for kept in (3, 3, 1):
            rows.append(([*prompt, *turn[:kept], *draw.integers(4, V, 4)], length))
    ids_T = np.concatenate([ids for ids, _ in rows]).astype(np.int64)
    mask_T = np.concatenate([np.arange(len(ids)) >= prompt for ids, prompt in rows])
    return ids_T, mask_T, np.cumsum([0, *(len(ids) for ids, _ in rows)])


def gradient(module, *, trees):
    """∇ of a weighted sum of log-probabilities, as one tree a group, or an episode at a time."""
    ids_T, mask_T, offsets = episodes()
    weights_T = np.random.default_rng(1).standard_normal(len(ids_T)).astype(np.float32)
    module.zero_grad(set_to_none=True)
    learner = Learner(module, head_of(module))
    learner.trees = trees
    tokens = 0
    for batch in batches(forest(ids_T, mask_T, offsets, 3, share=trees), 200):
        rows = {"targets_T": ids_T[batch.row_T], "dlogp_T": weights_T[batch.row_T]}
        given = {name: torch.from_numpy(row) for name, row in rows.items()}
        loss, _ = learner(batch, given, mode="given")
        loss.backward()
        tokens += batch.tokens
    return {n: p.grad for n, p in module.named_parameters() if p.grad is not None}, tokens


@pytest.mark.parametrize("family", SHARED)
def test_the_gradient_of_a_tree_is_that_of_its_episodes(family):
    module = built(family)
    assert computes_trees(module)
    shared, fewer = gradient(module, trees=True)
    alone, tokens = gradient(module, trees=False)
    assert fewer < 0.8 * tokens
    assert shared.keys() == alone.keys()
    largest = max(float(g.abs().max()) for g in alone.values())
    for name, expected in alone.items():
        # biases of keys have no gradient but rounding
        scale = max(float(expected.abs().max()), 1e-3 * largest)
        assert float((shared[name] - expected).abs().max()) <= 5e-5 * scale, name


@pytest.mark.parametrize("family", ALONE)
def test_families_that_compute_no_tree_are_found_out(family):
    module = built(family)
    assert not computes_trees(module)
    found, _ = gradient(module, trees=False)
    assert max(float(g.abs().max()) for g in found.values()) > 0


def test_a_mask_that_is_ignored_is_noticed(monkeypatch):
    module = built("Llama")
    forward = module.base_model.forward
    monkeypatch.setattr(
        module.base_model, "forward",
        lambda attention_mask=None, **given: forward(attention_mask=None, **given),
    )  # fmt: skip
    assert not computes_trees(module)


def test_positions_that_are_ignored_are_noticed(monkeypatch):
    module = built("GPT2")
    forward = module.base_model.forward
    monkeypatch.setattr(
        module.base_model, "forward", lambda position_ids=None, **given: forward(**given)
    )
    assert not computes_trees(module)
