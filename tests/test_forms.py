import hashlib

import numpy as np
import pytest
import torch
from blake3 import blake3

from harness.forms import (
    DTYPES,
    Artifact,
    Document,
    Inference,
    Instance,
    Lesson,
    Scores,
    Stop,
    Trajectories,
    torch_bytes,
)
from harness.identity import canonical, content_id


def test_arrays_cannot_be_written_into():
    Z = Trajectories({"problems": 1}, {"token_ids": np.arange(4, dtype=np.int32)})
    with pytest.raises(ValueError, match="read-only"):
        Z.token_ids_T[0] = 9
    with pytest.raises(ValueError, match="read-only"):
        Z.token_ids_T[1:3] += 1


def test_an_identifier_does_not_depend_on_the_order_of_names():
    a, b = np.arange(3.0), np.arange(4)
    one = Scores({"x": 1, "y": 2}, {"rewards": a, "turn_rewards": b})
    two = Scores({"y": 2, "x": 1}, {"turn_rewards": b, "rewards": a})
    assert one.id == two.id


def test_an_identifier_does_not_depend_on_strides():
    table = np.arange(24, dtype=np.float32).reshape(4, 6)
    views = [table, np.asfortranarray(table), np.repeat(table, 2, 0)[::2], table[::-1][::-1]]
    assert len({Scores({}, {"t": view}).id for view in views}) == 1
    assert Scores({}, {"t": table.T.copy()}).id != Scores({}, {"t": table}).id


def test_an_identifier_depends_on_every_bit_dtype_and_shape():
    zero = np.zeros(4, np.float32)
    others = [-zero, zero.astype(np.float64), zero.reshape(2, 2), zero[:3], zero.view(np.int32)]
    found = {Scores({}, {"t": array}).id for array in [zero, *others]}
    assert len(found) == 6


def test_kinds_with_the_same_content_differ():
    kinds = (Instance, Trajectories, Scores, Lesson, Document, Inference)
    assert len({kind({"a": 1}).id for kind in kinds}) == 6


def test_empty_arrays_and_scalars_have_identifiers():
    empty = Scores({}, {"rewards": np.zeros(0)})
    assert empty.id == content_id("feedback", {}, [("rewards", "F64", (0,), memoryview(b""))])
    assert Scores({}, {"t": np.array(1.5)}).id != Scores({}, {"t": np.array([1.5])}).id


def test_replacing_makes_a_new_value_and_leaves_the_old():
    one = Scores({"a": 1}, {"rewards": np.zeros(2)})
    before = one.id
    two = one.replace({"b": 2}, rewards=np.ones(2))
    assert (two.meta, one.meta) == ({"a": 1, "b": 2}, {"a": 1})
    assert one.id == before != two.id
    assert type(two) is Scores


def test_names_of_types_are_those_of_both_libraries():
    for name in DTYPES:
        if name != "bfloat16":
            assert np.dtype(name).name == name
        assert isinstance(getattr(torch, name), torch.dtype)


def test_a_numpy_array_and_a_torch_tensor_have_the_same_bytes():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    name, dtype, shape, view = torch_bytes("t", torch.from_numpy(array.copy()))
    assert (name, dtype, shape) == ("t", "F32", (2, 3))
    assert content_id("feedback", {}, [(name, dtype, shape, view)]) == Scores({}, {"t": array}).id


def test_bfloat16_is_hashed_by_its_own_bits():
    tensor = torch.tensor([1.0, -2.0, 3.140625], dtype=torch.bfloat16)
    _, dtype, shape, view = torch_bytes("t", tensor)
    assert (dtype, shape) == ("BF16", (3,))
    # the upper halves of the float32 bits, little-endian
    assert bytes(view) == bytes.fromhex("803f00c04940")
    root = blake3(view).hexdigest()
    body = canonical({"meta": {}, "tensors": [["t", "BF16", [3], root]]})
    expected = "sha256:" + hashlib.sha256(b"harness/model/v1\0" + body).hexdigest()
    assert Artifact("model", {}, {"t": tensor}).id == expected


def test_an_artifact_does_not_depend_on_order_or_strides():
    table = torch.arange(12.0).reshape(3, 4)
    strided = table.t().contiguous().t()
    assert not strided.is_contiguous()
    one = Artifact("model", {}, {"a": table, "b": torch.ones(2)})
    two = Artifact("model", {}, {"b": torch.ones(2), "a": strided})
    assert one.id == two.id


def test_one_bit_of_a_large_tensor_changes_the_artifact():
    tensor = torch.zeros(3_000_000)
    before = Artifact("model", {}, {"a": tensor}).id
    changed = tensor.clone()
    changed[2_345_678] = -0.0
    assert Artifact("model", {}, {"a": changed}).id != before


def test_stop_reasons_keep_their_numbers():
    # they stand in records
    assert [s.name for s in Stop] == [
        "TERMINATED", "TOKEN_BUDGET", "TURN_BUDGET", "TOOL_FAILURE", "TIMEOUT", "INVALID_ACTION",
        "CONTEXT_FULL",
    ]  # fmt: skip
    assert [int(s) for s in Stop] == list(range(7))
