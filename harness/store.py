"""Values by content identifier: `<root>/<kind>/<ab>/<hex>/content.safetensors`, written once.

A file holds the named arrays of a value and one metadata key, the canonical JSON of its `meta`:
with a single key the bytes of a file are a function of the value. Nothing is ever unpickled.

A local root is written by temporary file, fsync, rename and fsync of the folder: a name that exists
is whole. Any other root goes through MLflow's artifact repositories (S3, GCS, an MLflow server).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar, overload

from harness import forms
from harness.forms import Artifact, Packed
from harness.identity import canonical

NAME = "content.safetensors"
META = "harness"
"""The one metadata key of a stored file."""
PREFIX = "sha256:"

V = TypeVar("V", Packed, Artifact)


@dataclass(frozen=True)
class TokenizerFiles(Packed):
    """The files of a tokenizer: each a uint8 array under its file name."""

    kind: ClassVar[str] = "tokenizer"


PACKED: dict[str, type[Packed]] = {
    cls.kind: cls
    for cls in (
        forms.Instance, forms.Trajectories, forms.Scores, forms.Lesson, forms.Document,
        forms.Inference, TokenizerFiles,
    )
}  # fmt: skip
"""Kinds that are read as numpy arrays; every other kind is an Artifact of torch tensors."""


@dataclass(frozen=True)
class Store:
    """A content-addressed folder, local or behind an MLflow artifact repository."""

    root: str = "harness-cas"
    snapshot_every: int = 1
    """Every how many rounds the runner keeps the state itself."""

    def __post_init__(self) -> None:
        if not self.root:
            raise ValueError("store.root is empty; give a folder or an artifact URI")
        if self.snapshot_every < 1:
            raise ValueError(f"store.snapshot_every is {self.snapshot_every}; it is at least 1")

    def put(self, value: Packed | Artifact) -> str:
        """Store a value, and the tokenizer that a model carries; what is there is left as it is."""
        tokenizer = getattr(value, "tokenizer", None)
        if isinstance(tokenizer, Packed):
            self.put(tokenizer)
        if not self.has(value.kind, value.id):
            folder = _folder(value.kind, value.id)
            if (local := self._local) is not None:
                _publish(value, local / folder / NAME)
            else:
                with tempfile.TemporaryDirectory(prefix="harness-put-") as scratch:
                    _write(value, Path(scratch) / NAME)
                    self._repository.log_artifact(str(Path(scratch) / NAME), folder)
        return value.id

    def has(self, kind: str, identifier: str) -> bool:
        folder = _folder(kind, identifier)
        if (local := self._local) is not None:
            return (local / folder / NAME).exists()
        found = self._repository.list_artifacts(folder) or []
        return any(item.path.endswith(NAME) for item in found)

    @overload
    def get(self, kind: str, identifier: str, *, check: bool = False) -> Any: ...
    @overload
    def get(self, kind: type[V], identifier: str, *, check: bool = False) -> V: ...

    def get(self, kind: str | type[Any], identifier: str, *, check: bool = False) -> Any:
        """Read a value; KeyError where it is absent, Corrupt where it is not what its name says.

        Only `check` hashes it again. kind: its name, or the class to read it as: a Packed form, or
        any class made from (kind, meta, tensors), with a fourth field `tokenizer` if it has one.
        """
        cls = kind if isinstance(kind, type) else PACKED.get(kind, Artifact)
        name = kind if isinstance(kind, str) else getattr(kind, "kind", "model")
        with self._path(name, identifier) as path:
            value = self._read(cls, name, path)
        if check and value.id != identifier:
            raise Corrupt(f"{name} {identifier} holds {value.id}; restore it from another store")
        return value

    def check(self, kind: str, identifier: str) -> bool:
        """Whether the value is there and its content still has its identifier."""
        try:
            self.get(kind, identifier, check=True)
        except (KeyError, Corrupt):
            return False
        return True

    def delete(self, kind: str, identifier: str) -> None:
        """Drop the bytes of a value; records that name it stay as they are."""
        folder = _folder(kind, identifier)
        if (local := self._local) is not None:
            shutil.rmtree(local / folder, ignore_errors=True)
        else:
            self._repository.delete_artifacts(folder)

    def _read(self, cls: type[Any], name: str, path: Path) -> Any:
        packed = issubclass(cls, Packed)
        try:
            meta, arrays = _load(path, "np" if packed else "pt")
        except Exception as error:  # the reader's errors have no common class
            raise Corrupt(f"{path} cannot be read as a stored value: {error}") from error
        if packed:
            return cls(meta, arrays)
        if "tokenizer" in getattr(cls, "__dataclass_fields__", {}):
            return cls(name, meta, arrays, self.get(TokenizerFiles, meta["tokenizer"]))
        return cls(name, meta, arrays)

    def _path(self, kind: str, identifier: str) -> _Fetched:
        if not self.has(kind, identifier):
            raise KeyError(f"{kind} {identifier} is not in the store {self.root}")
        folder = _folder(kind, identifier)
        if (local := self._local) is not None:
            return _Fetched(local / folder / NAME)
        scratch = tempfile.mkdtemp(prefix="harness-get-")
        self._repository.download_artifacts(f"{folder}/{NAME}", scratch)
        return _Fetched(Path(scratch) / folder / NAME, scratch)

    @property
    def _local(self) -> Path | None:
        if self.root.startswith("file://"):
            return Path(self.root.removeprefix("file://"))
        return None if "://" in self.root or ":/" in self.root else Path(self.root)

    @property
    def _repository(self) -> Any:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        return get_artifact_repository(self.root)


class Corrupt(Exception):
    """A stored value is not what its name says."""


@dataclass
class _Fetched:
    """A readable file, and the scratch folder to drop once it has been read."""

    path: Path
    scratch: str | None = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def _folder(kind: str, identifier: str) -> str:
    digits = identifier.removeprefix(PREFIX)
    hexadecimal = len(digits) == 64 and set(digits) <= set("0123456789abcdef")
    if not (identifier.startswith(PREFIX) and hexadecimal):
        raise ValueError(f"{identifier!r} is no identifier; it is sha256: and 64 hex digits")
    if not kind.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"{kind!r} is no kind of value; it is one word")
    return f"{kind}/{digits[:2]}/{digits}"


def _write(value: Packed | Artifact, path: Path) -> None:
    metadata = {META: canonical(value.meta).decode()}
    if isinstance(value, Packed):
        from safetensors.numpy import save_file as save_arrays

        save_arrays({name: a.copy(order="C") for name, a in value.arrays.items()}, path, metadata)
    else:
        from safetensors.torch import save_file

        save_file({k: t.detach().contiguous() for k, t in value.tensors.items()}, path, metadata)


def _load(path: Path, framework: str) -> tuple[Any, dict[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, framework=framework) as file:
        meta = json.loads((file.metadata() or {})[META])
        return meta, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _publish(value: Packed | Artifact, path: Path) -> None:
    """Write a whole file or none, durable before its name exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{uuid.uuid4().hex}")
    try:
        _write(value, scratch)
        sync(scratch)
        scratch.chmod(0o444)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    for folder in path.parents[:4]:
        sync(folder)


def sync(path: Path) -> None:
    """Have the disk hold what the file or folder holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
