"""Artifacts that are read from the store when they are needed."""

import pytest
import torch

from harness.forms import Artifact
from harness.policies.model import Model
from harness.store import NAME, Corrupt, Store
from harness.stored import Stored, at_rest


@pytest.fixture
def artifact():
    tensors = {
        "b": torch.arange(6.0).reshape(2, 3).to(torch.bfloat16),
        "a": torch.tensor([1.5, float("nan"), -0.0]),
        "none": torch.empty(0, 4), "one": torch.tensor(7),
    }  # fmt: skip
    return Artifact("optimizer", {"step": 3}, tensors)


def test_what_is_not_stored_is_kept_in_memory(tmp_path, artifact):
    assert at_rest(artifact, Store(str(tmp_path))) is artifact


def test_what_is_stored_is_read_bit_for_bit(tmp_path, artifact):
    store = Store(str(tmp_path))
    store.put(artifact)
    found = at_rest(artifact, store)
    assert (found.kind, found.meta, found.id) == ("optimizer", {"step": 3}, artifact.id)
    read = dict(found.tensors.items())
    assert list(read) == sorted(artifact.tensors) == list(found.tensors)
    assert len(found.tensors) == 4
    assert found.with_tensors(read).id == artifact.id
    for name, tensor in read.items():
        assert tensor.dtype == artifact.tensors[name].dtype
        assert tensor.shape == artifact.tensors[name].shape
        again = found.tensors[name]
        assert torch.equal(again.view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8))


def test_a_changed_file_is_refused_when_it_has_been_walked_through(tmp_path, artifact):
    store = Store(str(tmp_path))
    store.put(artifact)
    (file,) = tmp_path.rglob(NAME)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    with pytest.raises(Corrupt, match="restore it from another store"):
        dict(at_rest(artifact, store).tensors.items())


def test_a_model_keeps_the_files_of_its_tokenizer(tmp_path):
    model = Model("model", {"architecture": {}}, {"w": torch.ones(2)}, {"tokenizer.json": b"{}"})
    store = Store(str(tmp_path))
    store.put(model)
    found = Stored.of(model, store)
    assert found.files == model.files
    assert found.id == model.id
