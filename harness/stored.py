"""Artifacts that stay in the store: read tensor by tensor when they are needed, and not kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.forms import DTYPES, Artifact, torch_bytes
from harness.identity import entry, id_of_entries
from harness.store import Corrupt, Store


@dataclass(frozen=True)
class Stored:
    """An artifact that is read when its tensors are asked for, and not kept."""

    kind: str
    meta: Mapping[str, Any]
    id: str
    files: Mapping[str, bytes]
    store: Store
    shapes: Mapping[str, tuple[int, ...]]
    """Of the tensors: who counts a model's work need not read them."""
    base: None = None
    """A model that stands on another is kept as it is: only its own tensors would be read."""

    @classmethod
    def of(cls, artifact: Any, store: Store) -> Stored:
        """What stands in for an artifact that the store has."""
        files = getattr(artifact, "files", {})
        shapes = {name: tuple(tensor.shape) for name, tensor in artifact.tensors.items()}
        return cls(artifact.kind, artifact.meta, artifact.id, files, store, shapes)

    @property
    def tensors(self) -> Mapping[str, Any]:
        return Streamed(self)

    def with_tensors(self, tensors: Mapping[str, Any]) -> Artifact:
        """An artifact of the same metadata with other tensors."""
        return Artifact(self.kind, self.meta, dict(sorted(tensors.items())))


@dataclass(frozen=True)
class Streamed(Mapping[str, Any]):
    """The tensors of a stored artifact, one at a time in memory; a whole walk is checked."""

    of: Stored

    def __iter__(self) -> Iterator[str]:
        with self.of.store.path(self.of.kind, self.of.id) as path:
            yield from sorted(_places(path)[0])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Any:
        with self.of.store.path(self.of.kind, self.of.id) as path:
            return _at(path, *_places(path), name)

    def items(self) -> Any:
        """Name and tensor. Raises Corrupt at the end where they are not the identifier's."""
        with self.of.store.path(self.of.kind, self.of.id) as path:
            places, start = _places(path)
            entries = []
            for name in sorted(places):
                tensor = _at(path, places, start, name)
                entries.append(entry(torch_bytes(name, tensor)))
                yield name, tensor
        found = id_of_entries(self.of.kind, self.of.meta, entries)
        if found != self.of.id:
            raise Corrupt(
                f"{self.of.kind} {self.of.id} holds {found}; restore it from another store"
            )


def _places(path: Path) -> tuple[dict[str, Any], int]:
    """Where the tensors of a file lie, and where the first begins."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        places = json.loads(file.read(size))
    places.pop("__metadata__", None)
    return places, 8 + size


def _at(path: Path, places: Mapping[str, Any], start: int, name: str) -> Any:
    """One tensor, read into memory of its own."""
    import torch

    place = places[name]
    dtype = {short: long for long, short in DTYPES.items()}[place["dtype"]]
    tensor = torch.empty(place["shape"], dtype=getattr(torch, dtype))
    if tensor.numel():
        with path.open("rb", buffering=0) as file:
            file.seek(start + place["data_offsets"][0])
            flat: Any = tensor.view(-1).view(torch.uint8).numpy()
            file.readinto(memoryview(flat))
    return tensor


def at_rest(artifact: Any, store: Store) -> Any:
    """The artifact, out of memory where the store has it."""
    alone = getattr(artifact, "base", None) is None
    there = alone and store.has(artifact.kind, artifact.id)
    return Stored.of(artifact, store) if there else artifact
