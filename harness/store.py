"""Values by content identifier: `<root>/<kind>/<ab>/<hex>/content.safetensors`, written once.

A file holds the named arrays of a value and one metadata key, the canonical JSON of its `meta` and
of where its further files are: with a single key the bytes of a file are a function of the value.
Nothing is ever unpickled.

A local root is written by temporary file, fsync, rename and fsync of the folder: a name that exists
is whole. Any other root goes through MLflow's artifact repositories (S3, GCS, an MLflow server).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness import forms
from harness.durable import install
from harness.forms import Artifact, Packed
from harness.identity import canonical

NAME = "content.safetensors"
RETIRED = "retired.txt"
META = "harness"
"""The one metadata key of a stored file."""
PREFIX = "sha256:"
IDENTIFIER = re.compile(f"{PREFIX}[0-9a-f]{{64}}")


@dataclass(frozen=True)
class TokenizerFiles(Packed):
    """The files of a tokenizer, stored once for all models: each a uint8 array under its name."""

    kind: ClassVar[str] = "tokenizer"

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> TokenizerFiles:
        return cls({}, {name: np.frombuffer(data, np.uint8) for name, data in files.items()})

    @property
    def files(self) -> dict[str, bytes]:
        return {name: array.tobytes() for name, array in self.arrays.items()}


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
        """Store a value, and `files` and `base` of a model; what is there is left as it is."""
        if isinstance(value, Artifact) and (carried := _carried(value)):
            self.put(carried)
        if base := getattr(value, "base", None):
            self.put(base)
        if not self.has(value.kind, value.id):
            folder = _folder(value.kind, value.id)
            if (local := self._local) is not None:
                _publish(value, local / folder / NAME)
            else:
                with tempfile.TemporaryDirectory(prefix="harness-put-") as scratch:
                    _write(value, Path(scratch) / NAME)
                    self._repository.log_artifact(str(Path(scratch) / NAME), folder)
        else:
            self._renew(value.kind, value.id)
        return value.id

    def has(self, kind: str, identifier: str) -> bool:
        return self._has(_folder(kind, identifier), NAME)

    def get(self, kind: Any, identifier: str, *, check: bool = False, held: Any = None) -> Any:
        """Read a value; KeyError where it is absent, Corrupt where it is not what its name says.

        Only `check` hashes it again. kind: its name, or the class to read it as: a Packed form, or
        one of kind, meta, tensors, and `files` and `base` if it has them. held: a base at hand.
        """
        cls = kind if isinstance(kind, type) else PACKED.get(kind, Artifact)
        name = kind if isinstance(kind, str) else getattr(kind, "kind", "model")
        with self.path(name, identifier) as path:
            value = self._read(cls, name, path, held)
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

    def admit(self, kind: str, identifier: str, file: Path) -> None:
        """Take over a file that was checked to hold the value of this identifier."""
        folder = _folder(kind, identifier)
        if self.has(kind, identifier):
            self._renew(kind, identifier)
            return
        if (local := self._local) is None:
            with tempfile.TemporaryDirectory(prefix="harness-put-") as scratch:
                shutil.copy(file, Path(scratch) / NAME)
                self._repository.log_artifact(str(Path(scratch) / NAME), folder)
            return
        install(local / folder / NAME, lambda path: shutil.copyfile(file, path))

    def delete(self, kind: str, identifier: str) -> None:
        """Drop the bytes of a value; records that name it stay as they are."""
        folder = _folder(kind, identifier)
        if (local := self._local) is not None:
            shutil.rmtree(local / folder, ignore_errors=True)
        else:
            self._repository.delete_artifacts(folder)

    def retire(self, kind: str, identifier: str, reason: str) -> None:
        """Drop the bytes of a value and say why, so that their absence is no fault of the store."""
        folder = _folder(kind, identifier)
        with tempfile.TemporaryDirectory(prefix="harness-retire-") as scratch:
            note = Path(scratch) / RETIRED
            note.write_text(reason, encoding="utf-8")
            self._repository.log_artifact(str(note), folder)
        # after the note: who is stopped in between leaves no gap that nobody knows of
        if (local := self._local) is not None:
            (local / folder / NAME).unlink(missing_ok=True)
        elif self.has(kind, identifier):
            self._repository.delete_artifacts(f"{folder}/{NAME}")

    def retired(self, kind: str, identifier: str) -> str | None:
        """Why a value was dropped on purpose; None where it was not."""
        folder = _folder(kind, identifier)
        if not self._has(folder, RETIRED):
            return None
        with tempfile.TemporaryDirectory(prefix="harness-get-") as scratch:
            note = self._repository.download_artifacts(f"{folder}/{RETIRED}", scratch)
            return Path(note).read_text(encoding="utf-8")

    def size(self, kind: str, identifier: str) -> int:
        """Bytes that a value takes; 0 where it is absent."""
        folder = _folder(kind, identifier)
        if (local := self._local) is not None:
            path = local / folder / NAME
            return path.stat().st_size if path.is_file() else 0
        found = self._repository.list_artifacts(folder) or []
        return sum(item.file_size or 0 for item in found if item.path.endswith(f"/{NAME}"))

    def beside(self, name: str) -> Path | None:
        """A folder beside the values, for what is none; None where the store is not local."""
        return None if (local := self._local) is None else local / name

    @staticmethod
    def read(kind: str, path: Path) -> Packed | Artifact:
        """A value from a file of unknown origin, without the files that it names."""
        cls = PACKED.get(kind)
        try:
            head, arrays = _load(path, "pt" if cls is None else "np")
            meta = head["meta"]
        except Exception as error:  # the reader's errors have no common class
            raise Corrupt(f"it cannot be read as a stored value: {error}") from error
        return Artifact(kind, meta, arrays) if cls is None else cls(meta, arrays)

    def _read(self, cls: type[Any], name: str, path: Path, held: Any) -> Any:
        packed = issubclass(cls, Packed)
        try:
            head, arrays = _load(path, "np" if packed else "pt")
            meta, carried = head["meta"], head["files"]
        except Exception as error:  # the reader's errors have no common class
            raise Corrupt(f"{path} cannot be read as a stored value: {error}") from error
        if packed:
            return cls(meta, arrays)
        fields, more = getattr(cls, "__dataclass_fields__", {}), dict[str, Any]()
        if "files" in fields and carried is not None:
            more["files"] = self.get(TokenizerFiles, carried, check=True).files
        if "base" in fields and (base := meta.get("base")):
            more["base"] = held if held and held.id == base else self.get(cls, base, check=True)
        return cls(name, meta, arrays, **more)

    def _renew(self, kind: str, identifier: str) -> None:
        """Make a value young again: what nothing names yet is collected by age."""
        if (local := self._local) is not None:
            with contextlib.suppress(OSError):
                os.utime(local / _folder(kind, identifier) / NAME)

    def _has(self, folder: str, name: str) -> bool:
        if (local := self._local) is not None:
            return os.path.exists(f"{local}/{folder}/{name}")
        found = self._repository.list_artifacts(folder) or []
        return any(item.path.endswith(f"/{name}") for item in found)

    def path(self, kind: str, identifier: str) -> _Fetched:
        """The file of a value, as a context: a copy where the store is not local."""
        if not self.has(kind, identifier):
            raise KeyError(f"{kind} {identifier} is not in the store {self.root}")
        folder = _folder(kind, identifier)
        if (local := self._local) is not None:
            return _Fetched(local / folder / NAME)
        scratch = tempfile.mkdtemp(prefix="harness-get-")
        self._repository.download_artifacts(f"{folder}/{NAME}", scratch)
        return _Fetched(Path(scratch) / folder / NAME, scratch)

    @cached_property
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
    if IDENTIFIER.fullmatch(identifier) is None:
        raise ValueError(f"{identifier!r} is no identifier; it is sha256: and 64 hex digits")
    if not kind.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"{kind!r} is no kind of value; it is one word")
    digits = identifier.removeprefix(PREFIX)
    return f"{kind}/{digits[:2]}/{digits}"


def _carried(value: Artifact) -> TokenizerFiles | None:
    files = getattr(value, "files", None)
    return TokenizerFiles.of(files) if files else None


def _write(value: Packed | Artifact, path: Path) -> None:
    carried = None if isinstance(value, Packed) else _carried(value)
    head = {"meta": value.meta, "files": carried and carried.id}
    metadata = {META: canonical(head).decode()}
    if isinstance(value, Packed):
        from safetensors.numpy import save_file as save_arrays

        save_arrays({name: a.copy(order="C") for name, a in value.arrays.items()}, path, metadata)
    else:
        from safetensors.torch import save_file

        save_file({k: t.detach().contiguous() for k, t in value.tensors.items()}, path, metadata)


def _load(path: Path, framework: str) -> tuple[Any, dict[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, framework=framework) as file:
        head = json.loads((file.metadata() or {})[META])
        return head, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _publish(value: Packed | Artifact, path: Path) -> None:
    install(path, lambda scratch: _write(value, scratch))
