"""Opening MLflow's store: quietly, without truncation, and safely for several first comers."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

DEFAULT = "sqlite:///mlflow.db"
"""What plain `mlflow ui` in the same folder opens."""
ARTIFACTS = "mlartifacts"
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
TRANSIENT = ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")

T = TypeVar("T")


def quiet() -> None:
    """Settings of MLflow that must stand before it is imported."""
    # a value that is too long must raise: cut short, it would be another value
    os.environ["MLFLOW_TRUNCATE_LONG_VALUES"] = "false"
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def tracking_uri(uri: str | None = None) -> str:
    """The URI asked for, else MLFLOW_TRACKING_URI, else a database in this folder."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
    kind = urlsplit(uri).scheme.split("+")[0]
    if kind in ("", "file"):
        raise ValueError(
            f"the tracking URI {uri!r} names an old file store, which cannot hold a ledger; run "
            f"`mlflow migrate-filestore` and give the database, such as {DEFAULT}"
        )
    if kind not in (*DATABASES, "http", "https", "databricks"):
        raise ValueError(
            f"the tracking URI {uri!r} is of no kind that MLflow serves; give sqlite:///FILE, a "
            "database, or the http address of an MLflow server"
        )
    return uri


def folder_of(uri: str) -> Path | None:
    """The folder of a sqlite file, None for every other store."""
    if not uri.startswith("sqlite:"):
        return None
    return Path(urlsplit(uri).path[1:]).resolve().parent


@contextlib.contextmanager
def first_contact(uri: str) -> Iterator[None]:
    """Let one process at a time make the tables of a sqlite file, which MLflow does not guard."""
    if (folder := folder_of(uri)) is None:
        yield
        return
    if not folder.is_dir():
        raise ValueError(f"the tracking URI {uri!r} lies in no folder; make {folder} first")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"the folder {folder} cannot be written to; run where you may write")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def connect(uri: str) -> Any:
    """An MlflowClient whose store answers."""
    quiet()
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    with first_contact(uri), impatient():
        try:
            client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            client.search_experiments(max_results=1)
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise ValueError(_sentence(uri, str(error))) from error
        quiet()  # the migrations of a fresh file set their own levels
    return client


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """A server that is not there at all is not waited for minutes, as one is that is busy."""
    name = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
    before = os.environ.get(name)
    os.environ[name] = before or "2"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]


def _sentence(uri: str, message: str) -> str:
    if "out-of-date" in message:
        return f"the database of {uri!r} is of an older MLflow; run `mlflow db upgrade {uri}`"
    if "readonly" in message or "read-only" in message:
        return f"the database of {uri!r} cannot be written to; run where you may write"
    return f"the tracking store {uri!r} does not answer ({message.splitlines()[0]}); check it"


def present(uri: str) -> bool:
    """Whether a sqlite file is there; of any other store, that is for it to say."""
    return folder_of(uri) is None or Path(urlsplit(uri).path[1:]).is_file()


def experiment(client: Any, uri: str, name: str, make: bool = True) -> Any:
    """Get or create an experiment; several processes may ask at once."""
    from mlflow.exceptions import MlflowException

    folder = folder_of(uri)
    location = None if folder is None else (folder / ARTIFACTS / name).as_uri()
    for _ in range(20):
        found = client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage != "active":
            raise ValueError(
                f"the experiment {name!r} was deleted; run "
                f"`mlflow experiments restore -x {found.experiment_id}` or choose another name"
            )
        if found is not None:
            return found
        if not make:
            raise ValueError(f"{uri!r} has no experiment {name!r}; run a round first, or name it")
        try:
            client.create_experiment(name, artifact_location=location)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_ALREADY_EXISTS", *TRANSIENT):
                raise
            time.sleep(0.05)
    raise ValueError(f"the experiment {name!r} cannot be made in {uri!r}; look at the server's log")


def optimize(uri: str) -> bool:
    """Have a local sqlite file gather statistics; whether it did. Without them its planner sorts
    runs by a metric in quadratic time. A file that is busy or not ours to write is left alone."""
    if (folder := folder_of(uri)) is None or not os.access(folder, os.W_OK):
        return False
    with contextlib.closing(sqlite3.connect(urlsplit(uri).path[1:], timeout=0.5)) as database:
        try:
            database.executescript("PRAGMA analysis_limit=1000; ANALYZE; PRAGMA optimize;")
        except sqlite3.OperationalError:
            return False
    return True


def retrying(call: Callable[[], T], *, times: int = 6) -> T:
    """Repeat an idempotent call while the store says that it is busy."""
    from mlflow.exceptions import MlflowException

    for attempt in range(times):
        try:
            return call()
        except MlflowException as error:
            if error.error_code not in TRANSIENT or attempt == times - 1:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("unreachable")
