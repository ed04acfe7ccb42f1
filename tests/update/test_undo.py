"""The copy that a rejected proposal is undone with."""

import pytest
import torch

from harness.update.undo import Undo


@pytest.fixture(params=["memory", "file"])
def undo(request, tmp_path):
    return Undo(None if request.param == "memory" else str(tmp_path))


@pytest.fixture
def buffers():
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(10, 7, generator=generator)
    return [whole, torch.randn(5, generator=generator).to(torch.bfloat16), torch.tensor(3.0)]


def test_buffers_come_back_bit_for_bit_as_often_as_they_were_saved(undo, buffers):
    for _ in range(2):
        before = [b.clone() for b in buffers]
        undo.save(buffers)
        for b in buffers:
            b.mul_(-1.7)
        undo.restore(buffers)
        assert all(torch.equal(a, b) for a, b in zip(before, buffers, strict=True))
        buffers[0].add_(1)


def test_a_part_of_a_buffer_is_read_from_the_copy(undo, buffers):
    undo.save(buffers)
    parts = [buffers[0].view(-1)[13:34].view(3, 7), buffers[1][2:], buffers[2], buffers[0][:0]]
    before = [part.clone() for part in parts]
    for b in buffers:
        b.zero_()
    for part, old in zip(parts, before, strict=True):
        found = undo.part(buffers, part)
        assert found.shape == part.shape
        assert torch.equal(found, old)
    with pytest.raises(KeyError):
        undo.part(buffers, torch.ones(2))


def test_the_file_has_no_name(tmp_path, buffers):
    undo = Undo(str(tmp_path))
    undo.save(buffers)
    assert list(tmp_path.iterdir()) == []


def test_buffers_and_copy_change_places(undo, buffers):
    first = [b.clone() for b in buffers]
    undo.save(buffers)
    for b in buffers:
        b.mul_(-1.7)
    second = [b.clone() for b in buffers]
    for held in (first, second, first):
        undo.exchange(buffers)
        assert all(torch.equal(a, b) for a, b in zip(held, buffers, strict=True))
    undo.restore(buffers)
    assert all(torch.equal(a, b) for a, b in zip(second, buffers, strict=True))
