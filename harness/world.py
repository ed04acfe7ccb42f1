"""The ranks of a round: one leads, the others do what it says.

Rank 0 runs the rounds. R and U are the work of all ranks: as rank 0 enters one it calls the others to
it (`lead`), with everything that the map's inputs are, and then every rank runs the same code on its
share. What ranks exchange is bytes of values under their identifiers; sums are exact or in the order
of the ranks, so that a result is a function of the inputs and the number of ranks.

A rank that is gone closes its connections: whoever waits for it fails at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from harness.forms import DTYPES, Artifact, Packed

P = TypeVar("P", bound=Packed)
TORCH = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
         "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}  # fmt: skip


@dataclass(frozen=True)
class World:
    """Some ranks, and which of them this process is. Of size 1 it does nothing."""

    rank: int = 0
    size: int = 1
    group: Any = None
    """A process group of torch on the hosts, for bytes."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def lead(self, duty: str, **words: Any) -> None:
        """Call the others to a duty, with JSON words; on them it does nothing."""
        if self.size > 1 and self.leads:
            self._send(json.dumps({"duty": duty, **words}).encode())

    def hear(self) -> dict[str, Any]:
        """What rank 0 calls this rank to."""
        return dict(json.loads(self._send(None)))

    def say(self, value: Any) -> Any:
        """A JSON value of rank 0, on every rank."""
        if self.size == 1:
            return value
        return json.loads(self._send(json.dumps(value).encode() if self.leads else None))

    def tell(self, value: Any) -> list[Any]:
        """The JSON values of all ranks in their order, on every rank."""
        if self.size == 1:
            return [value]
        return [json.loads(part) for part in self._exchange(json.dumps(value).encode())]

    def agree(self, what: str, value: str) -> None:
        """Fail where the ranks do not hold the same."""
        values = self.tell(value)
        if len(set(values)) > 1:
            raise RuntimeError(f"the ranks hold different {what}: {', '.join(values)}")

    def share(self, count: int) -> range:
        """The part of `count` things, in order, that is this rank's; parts differ by at most one."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def gather(self, value: P) -> list[P]:
        """The values of all ranks in their order, on every rank."""
        if self.size == 1:
            return [value]
        return [unpacked(type(value), part) for part in self._exchange(packed(value))]

    def give(self, cls: type[P], value: P | None) -> P:
        """A value of rank 0, on every rank."""
        if self.size == 1:
            assert value is not None
            return value
        data = self._send(packed(value) if value is not None else None)
        return value if value is not None else unpacked(cls, data)

    def joined(self, array: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """An array whose elements are taken from the rank that marks them as its own."""
        if self.size == 1:
            return array
        index = np.flatnonzero(mine)
        parts = self._exchange(index.astype(np.int64).tobytes() + array[index].tobytes())
        whole, each = array.copy(), 8 + array.itemsize
        for part in parts:
            split = 8 * (len(part) // each)
            at = np.frombuffer(part[:split], np.int64)
            whole[at] = np.frombuffer(part[split:], array.dtype)
        return whole

    def give_artifact(self, value: Any) -> Artifact | None:
        """An artifact of rank 0, tensor by tensor: None there, its copy on the others."""
        import torch

        head: dict[str, Any] = {}
        if self.leads:
            tensors = value.tensors
            head = {"kind": value.kind, "meta": value.meta, "tensors": [
                [name, DTYPES[str(t.dtype).removeprefix("torch.")], list(t.shape)]
                for name, t in tensors.items()
            ]}  # fmt: skip
        head = self.say(head)
        copies = {}
        for name, dtype, shape in head["tensors"]:
            if self.leads:
                flat = tensors[name].detach().cpu().contiguous().reshape(-1)
            else:
                flat = torch.empty(int(np.prod(shape)), dtype=getattr(torch, TORCH[dtype]))
                copies[name] = flat.view(shape)
            if flat.numel():
                torch.distributed.broadcast(flat.view(torch.uint8), 0, group=self.group)
        return None if self.leads else Artifact(head["kind"], head["meta"], copies)

    def _send(self, data: bytes | None) -> bytes:
        """Bytes of rank 0, on every rank."""
        import torch

        size = torch.tensor([0 if data is None else len(data)])
        torch.distributed.broadcast(size, 0, group=self.group)
        buffer = _buffer(data, int(size))
        if len(buffer):
            torch.distributed.broadcast(buffer, 0, group=self.group)
        return data if data is not None else buffer.numpy().tobytes()

    def _exchange(self, data: bytes) -> list[bytes]:
        """The bytes of all ranks in their order, on every rank."""
        import torch

        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        torch.distributed.all_gather(sizes, torch.tensor([len(data)]), group=self.group)
        parts = []
        for rank, size in enumerate(sizes):
            own = rank == self.rank
            buffer = _buffer(data if own else None, int(size))
            if len(buffer):
                torch.distributed.broadcast(buffer, rank, group=self.group)
            parts.append(data if own else buffer.numpy().tobytes())
        return parts


ALONE = World()


def _buffer(data: bytes | None, size: int) -> Any:
    import torch

    if data:
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return torch.empty(size, dtype=torch.uint8)


def packed(value: Packed) -> bytes:
    """Metadata as JSON, then arrays as safetensors."""
    from safetensors.numpy import save

    meta = json.dumps(value.meta).encode()
    arrays = {name: np.ascontiguousarray(array) for name, array in value.arrays.items()}
    return len(meta).to_bytes(8, "little") + meta + save(arrays)


def unpacked(cls: type[P], data: bytes) -> P:
    from safetensors.numpy import load

    end = 8 + int.from_bytes(data[:8], "little")
    meta: Mapping[str, Any] = json.loads(data[8:end])
    return cls(meta, load(data[end:]))
