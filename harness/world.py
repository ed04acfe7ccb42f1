"""The ranks of a round: one leads, the others do what it says.

Rank 0 runs the rounds. R and U are the work of all ranks: as rank 0 enters one it calls the others
to it (`call`), with everything that the map's inputs are, and then every rank runs the same code on
its share. What ranks exchange is bytes of values under their identifiers; sums are exact or in the
order of the ranks, so that a result is a function of the inputs and the number of ranks.

A rank that is gone closes its connections: whoever waits for it fails at once.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from harness.forms import DTYPES, Packed

P = TypeVar("P", bound=Packed)
TORCH = {name: torch_name for torch_name, name in DTYPES.items()}


@dataclass(frozen=True)
class Call:
    """What rank 0 calls the others to."""

    duty: str
    words: dict[str, Any]
    artifacts: list[Any]
    value: bytes
    """Of a packed value."""


@dataclass(frozen=True)
class World:
    """Some ranks, and which of them this process is. Of size 1 it does nothing."""

    rank: int = 0
    size: int = 1
    group: Any = None
    """A process group of torch on the hosts, for bytes."""
    together: bool = False
    """All ranks run the same code already, as within U: nobody is called."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def call(
        self, duty: str, *, artifacts: Sequence[Any] = (), value: Packed | None = None, **words: Any
    ) -> None:  # fmt: skip
        """Call the others to a duty with what it needs; on them it does nothing.

        artifacts: given tensor by tensor where a rank lacks one; words: JSON.
        """
        if self.size == 1 or not self.leads or self.together:
            return
        named = [[a.kind, a.id] for a in artifacts]
        call = {"duty": duty, "words": words, "artifacts": named, "value": value is not None}
        self.say(call)
        for artifact in artifacts:
            if any(self.tell(False)):
                self._give(artifact)
        if value is not None:
            self._send(packed(value))

    def hear(self, find: Callable[[str, str], Any], make: Callable[..., Any]) -> Call:
        """What rank 0 calls this rank to.

        find: the artifact of a kind and an identifier, or None; make: one of kind, meta, tensors,
        files and base.
        """
        call = self.say(None)
        artifacts = []
        for kind, identifier in call["artifacts"]:
            held = find(kind, identifier)
            if any(self.tell(held is None)):
                copy = self._take(find, make)
                held = copy if held is None else held
            if held.id != identifier:
                raise RuntimeError(f"rank {self.rank} received {held.id}, not {identifier}")
            artifacts.append(held)
        value = self._send(None) if call["value"] else b""
        return Call(call["duty"], call["words"], artifacts, value)

    def say(self, value: Any) -> Any:
        """A JSON value of rank 0, on every rank."""
        if self.size == 1:
            return value
        if self.leads:
            self._send(json.dumps(value).encode())
            return value
        return json.loads(self._send(None))

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
        """This rank's part of `count` things, in order; parts differ by at most one."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def gather(self, value: P) -> list[P]:
        """The values of all ranks in their order, on every rank."""
        if self.size == 1:
            return [value]
        return [unpacked(type(value), part) for part in self._exchange(packed(value))]

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

    def _give(self, artifact: Any) -> None:
        """An artifact of rank 0 to the others, tensor by tensor; its base first."""
        import torch

        base = getattr(artifact, "base", None)
        self.say(None if base is None else base.id)
        if base is not None and any(self.tell(False)):
            self._give(base)
        tensors = artifact.tensors
        rows = [
            [name, DTYPES[str(t.dtype).removeprefix("torch.")], list(t.shape)]
            for name, t in tensors.items()
        ]
        files = {n: b64encode(f).decode() for n, f in getattr(artifact, "files", {}).items()}
        self.say([artifact.kind, artifact.meta, rows, files])
        for tensor in tensors.values():
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            if flat.numel():
                torch.distributed.broadcast(flat.view(torch.uint8), 0, group=self.group)

    def _take(self, find: Callable[[str, str], Any], make: Callable[..., Any]) -> Any:
        """What rank 0 gives."""
        import torch

        base = self.say(None)
        if base is not None:
            known = find("model", base)
            given = self._take(find, make) if any(self.tell(known is None)) else None
            base = given if known is None else known
        kind, meta, rows, files = self.say(None)
        tensors = {}
        for name, dtype, shape in rows:
            tensors[name] = torch.empty(shape, dtype=getattr(torch, TORCH[dtype]))
            if tensors[name].numel():
                flat = tensors[name].view(-1).view(torch.uint8)
                torch.distributed.broadcast(flat, 0, group=self.group)
        return make(kind, meta, tensors, {n: b64decode(f) for n, f in files.items()}, base)

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
