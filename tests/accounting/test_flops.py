import shutil
from types import SimpleNamespace

import pytest

from harness.accounting.flops import attention_width, frozen_elements, matrix_elements
from harness.forms import Artifact
from harness.policies.model import Model


def model(**shapes):
    tensors = {k.replace("__", "."): SimpleNamespace(shape=s) for k, s in shapes.items()}
    return Artifact("model", {}, tensors)


def test_a_tied_table_counts_as_the_output_layer():
    assert matrix_elements(model(embed_tokens__weight=(10, 4), q=(4, 4), norm=(4,))) == 56


def test_look_up_tables_are_not_multiplied_with():
    untied = model(embed_tokens__weight=(10, 4), lm_head__weight=(10, 4), q=(4, 4))
    assert matrix_elements(untied) == 56
    assert matrix_elements(model(wte__weight=(10, 4), wpe__weight=(7, 4), q=(4, 4))) == 56


def test_of_a_base_what_is_not_trained_is_frozen():
    base = model(embed_tokens__weight=(10, 4), q=(4, 4), k=(4, 4), norm=(4,))
    own = Model("model", {}, model(q=(4, 4), k__lora_A=(2, 4), norm=(4,)).tensors, base=base)
    assert matrix_elements(own) == 40 + 16 + 16 + 8
    assert frozen_elements(own) == 40 + 16
    assert frozen_elements(base) == 0


def test_the_configuration_of_llama_and_of_gpt2_are_read():
    llama = {"num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 4, "head_dim": 32}
    assert attention_width(llama) == 3 * 128
    assert attention_width({**llama, "head_dim": None}) == 3 * 96
    assert attention_width({"n_layer": 2, "n_embd": 64, "n_head": 4}) == 128
    assert attention_width({"text_config": llama}) == 3 * 128
    with pytest.raises(ValueError, match=r"names no layers or width"):
        attention_width({"vocab_size": 5})


def test_work_is_counted_without_reading_tensors(tmp_path):
    from harness.policies.tiny import Tiny
    from harness.store import Store
    from harness.stored import at_rest

    tiny, store = Tiny().initial(), Store(str(tmp_path))
    store.put(tiny)
    stored = at_rest(tiny, store)
    assert stored.shapes == {name: tuple(t.shape) for name, t in stored.tensors.items()}
    shutil.rmtree(tmp_path)
    assert matrix_elements(stored) == matrix_elements(tiny)
    assert frozen_elements(stored) == 0
