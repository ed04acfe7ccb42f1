"""What a rejected proposal leaves behind is nothing: a copy of the buffers, put back bit for bit.

The copy is in memory, or in a file that has no name and goes with its process.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Undo:
    """A copy of some buffers, which are the same ones each time."""

    def __init__(self, folder: str | None = None) -> None:
        """folder: where a file holds the copy; None: memory does."""
        self.file: Any = None
        if folder is not None:
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            weakref.finalize(self, self.file.close)
        self.copies: list[Tensor] = []

    def save(self, buffers: Sequence[Tensor]) -> None:
        """Take the copy. Raises OSError where the disk is full."""
        if self.file is None:
            if not self.copies:
                self.copies = [torch.empty_like(t) for t in buffers]
            torch._foreach_copy_(self.copies, list(buffers))
            return
        self.file.seek(0)
        for buffer in buffers:
            self.file.write(_bytes(buffer.cpu()))
        self.file.flush()

    def restore(self, buffers: Sequence[Tensor]) -> None:
        """Put the copy back."""
        with torch.no_grad():
            if self.file is None:
                torch._foreach_copy_(list(buffers), self.copies)
                return
            self.file.seek(0)
            for buffer in buffers:
                buffer.copy_(self._read(buffer, buffer.numel()))

    def exchange(self, buffers: Sequence[Tensor]) -> None:
        """The buffers and the copy change places, one after the other."""
        with torch.no_grad():
            at = 0
            for i, buffer in enumerate(buffers):
                live = buffer.detach().cpu().clone() if self.file else buffer.clone()
                if self.file is None:
                    buffer.copy_(self.copies[i])
                    self.copies[i].copy_(live)
                    continue
                self.file.seek(at)
                buffer.copy_(self._read(buffer, buffer.numel()))
                self.file.seek(at)
                self.file.write(_bytes(live))
                at += live.numel() * live.element_size()
            if self.file is not None:
                self.file.flush()

    def part(self, buffers: Sequence[Tensor], view: Tensor) -> Tensor:
        """The copy of a contiguous part of a buffer. KeyError where it lies in none."""
        if not view.numel():
            return view
        at, before = view.data_ptr(), 0
        for i, live in enumerate(buffers):
            start, size = live.data_ptr(), live.numel() * live.element_size()
            if start <= at < start + size:
                offset = (at - start) // live.element_size()
                if self.file is None:
                    held = self.copies[i].view(-1)[offset : offset + view.numel()]
                else:
                    self.file.seek(before + at - start)
                    held = self._read(live, view.numel())
                return held.view(view.shape)
            before += size
        raise KeyError("a tensor lies outside the engine's buffers")

    def _read(self, like: Tensor, count: int) -> Tensor:
        held = torch.empty(count, dtype=like.dtype)
        if self.file.readinto(_bytes(held)) != held.numel() * held.element_size():
            raise OSError("the copy of a state before its update was cut short")
        return held.view(like.shape) if count == like.numel() else held


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the host."""
    flat: Any = tensor.detach().view(-1).view(torch.uint8).numpy()
    return memoryview(flat)
