import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.forms import Artifact, Document, Trajectories
from harness.store import NAME, Corrupt, Store, TokenizerFiles


def a_model():
    return Artifact(
        "model",
        {"architecture": {"layers": 1}},
        {
            "b": torch.arange(6).reshape(2, 3).to(torch.bfloat16).T,
            "empty": torch.zeros(0, 3),
            "scalar": torch.tensor(1.5),
        },
    )


def some_trajectories():
    return Trajectories(
        {"problems": 1, "text": "é\u2028\0"},
        {"ids": np.arange(5, dtype=np.int32), "none": np.zeros((0, 2)), "one": np.array(True)},
    )


def file_of(store, value):
    digits = value.id.removeprefix("sha256:")
    return Path(store.root) / value.kind / digits[:2] / digits / NAME


@pytest.mark.parametrize("value", [a_model(), some_trajectories(), Document({"a": [1, 2.5, None]})])
def test_what_is_put_is_got_and_hashes_to_its_name(tmp_path, value):
    store = Store(str(tmp_path))
    assert store.put(value) == value.id
    assert store.has(value.kind, value.id)
    assert store.get(value.kind, value.id, check=True).id == value.id
    assert store.check(value.kind, value.id)


def test_equal_values_give_equal_files_and_are_written_once(tmp_path):
    one, two = Store(str(tmp_path / "1")), Store(str(tmp_path / "2"))
    one.put(a_model()), two.put(a_model())
    assert file_of(one, a_model()).read_bytes() == file_of(two, a_model()).read_bytes()
    before = file_of(one, a_model()).stat()
    one.put(a_model())
    assert file_of(one, a_model()).stat().st_ino == before.st_ino
    assert stat.S_IMODE(before.st_mode) == 0o444
    assert [p.name for p in file_of(one, a_model()).parent.iterdir()] == [NAME]


def test_a_changed_file_is_refused_and_a_missing_one_named(tmp_path):
    store = Store(str(tmp_path))
    store.put(some_trajectories())
    path = file_of(store, some_trajectories())
    good = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(Corrupt, match="restore it from another store"):
        store.get(Trajectories, some_trajectories().id, check=True)
    path.write_bytes(good[:20])
    with pytest.raises(Corrupt, match="cannot be read as a stored value"):
        store.get(Trajectories, some_trajectories().id)
    assert not store.check("trajectories", some_trajectories().id)
    store.retire("trajectories", some_trajectories().id, "the person asked")
    assert store.retired("trajectories", some_trajectories().id)
    assert not store.has("trajectories", some_trajectories().id)
    with pytest.raises(KeyError, match="is not in the store"):
        store.get("trajectories", some_trajectories().id)


def test_a_failed_write_leaves_nothing_under_the_name(tmp_path):
    store = Store(str(tmp_path))
    overlapping = torch.zeros(4)
    value = Artifact("model", {}, {"a": overlapping, "b": overlapping})
    with pytest.raises(RuntimeError):
        store.put(value)
    assert not store.has("model", value.id)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


@dataclass(frozen=True)
class Model(Artifact):
    files: Mapping[str, bytes] = field(default_factory=dict)


def test_a_model_brings_its_tokenizer(tmp_path):
    store = Store(str(tmp_path))
    files = {"tokenizer.json": b"{}", "empty": b""}
    model = Model("model", {"x": 1}, {"a": torch.ones(2)}, files)
    store.put(model)
    assert store.check("tokenizer", TokenizerFiles.of(files).id)
    back = store.get(Model, model.id, check=True)
    assert (back.files, back.id) == (files, model.id)
    assert not hasattr(store.get("model", model.id), "files")


def test_a_store_behind_an_artifact_repository_is_the_same_store(tmp_path, monkeypatch):
    store = Store(tmp_path.as_uri())
    monkeypatch.setattr(Store, "_local", None)
    for value in (a_model(), some_trajectories()):
        assert not store.has(value.kind, value.id)
        store.put(value)
        assert store.get(value.kind, value.id, check=True).id == value.id
        store.delete(value.kind, value.id)
        assert not store.has(value.kind, value.id)


def test_what_cannot_be_a_name_is_refused(tmp_path):
    store = Store(str(tmp_path))
    with pytest.raises(ValueError, match="is no identifier"):
        store.has("model", "sha256:../../etc")
    with pytest.raises(ValueError, match="is no kind"):
        store.has("../model", a_model().id)
    with pytest.raises(ValueError, match="snapshot_every is 0"):
        Store(str(tmp_path), snapshot_every=0)
