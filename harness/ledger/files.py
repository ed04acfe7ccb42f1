"""Artifacts of a run: durable on a local folder, through MLflow's repositories elsewhere."""

from __future__ import annotations

import functools
import os
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from harness.durable import sync
from harness.ledger.connection import ARTIFACTS, folder_of

RECORD = "record.json"


def reachable(artifact_uri: str, tracking_uri: str) -> str:
    """An artifact URI that can be read by itself: a server's own ones name no server, and MLflow
    writes down where a folder was before it was moved or copied."""
    if tracking_uri.startswith("sqlite:"):
        return _beside(artifact_uri, _home(tracking_uri, os.getcwd()))
    if not artifact_uri.startswith("mlflow-artifacts:") or not tracking_uri.startswith("http"):
        return artifact_uri
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

    return str(MlflowArtifactsRepository.resolve_uri(artifact_uri, tracking_uri))


def _beside(artifact_uri: str, folder: Path) -> str:
    """The same artifacts in the folder of the database, where our folder of artifacts is."""
    _, ours, rest = artifact_uri.rpartition(f"/{ARTIFACTS}/")
    if not ours or not (folder / ARTIFACTS / unquote(rest.partition("/")[0])).is_dir():
        return artifact_uri
    return f"{(folder / ARTIFACTS).as_uri()}/{rest}"


@functools.lru_cache(maxsize=64)
def _home(tracking_uri: str, working_folder: str) -> Path:
    folder = folder_of(tracking_uri)
    assert folder is not None
    return folder


def local(artifact_uri: str) -> Path | None:
    """The folder that an artifact URI names, if it is a local one."""
    from mlflow.utils.file_utils import local_file_uri_to_path

    remote = "://" in artifact_uri or ":/" in artifact_uri
    if remote and not artifact_uri.startswith("file:"):
        return None
    return Path(local_file_uri_to_path(artifact_uri))


def write(artifact_uri: str, files: Mapping[str, bytes]) -> None:
    """Write files under a run, each whole or not at all; the record is durable on return."""
    for name in files:
        if name.startswith("/") or ".." in Path(name).parts:
            raise ValueError(f"the artifact {name!r} would leave its run; give a plain name")
    if (folder := local(artifact_uri)) is None:
        with tempfile.TemporaryDirectory(prefix="harness-log-") as scratch:
            for name, data in files.items():
                _write(Path(scratch) / name, data)
            _repository(artifact_uri).log_artifacts(scratch)
        return
    for name, data in files.items():
        _write(folder / name, data, durable=name == RECORD)
    if RECORD in files:
        sync(folder)
        sync(folder.parent)
        sync(folder.parent.parent)


def read(artifact_uri: str, name: str) -> bytes | None:
    """The bytes of an artifact, None where there is none."""
    if (folder := local(artifact_uri)) is not None:
        path = folder / name
        return path.read_bytes() if path.is_file() else None
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory(prefix="harness-read-") as scratch:
        try:
            path = Path(_repository(artifact_uri).download_artifacts(name, scratch))
        except (MlflowException, OSError) as error:
            if _present(artifact_uri, name):
                raise OSError(f"the artifact {name} cannot be read: {error}") from error
            return None
        return path.read_bytes()


def drop(artifact_uri: str, name: str) -> None:
    """Remove an artifact, if it is there."""
    if (folder := local(artifact_uri)) is not None:
        (folder / name).unlink(missing_ok=True)
    elif _present(artifact_uri, name):
        _repository(artifact_uri).delete_artifacts(name)


def _present(artifact_uri: str, name: str) -> bool:
    parent = os.path.dirname(name) or None
    return any(item.path == name for item in _repository(artifact_uri).list_artifacts(parent))


def _repository(artifact_uri: str) -> Any:
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(artifact_uri)


def _write(path: Path, data: bytes, *, durable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{uuid.uuid4().hex}")
    try:
        scratch.write_bytes(data)
        if durable:
            sync(scratch)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
