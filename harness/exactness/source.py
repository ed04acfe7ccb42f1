"""The source that a record archived, unpacked and run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from harness.fingerprint import PROJECT, Source
from harness.ledger.entry import Entry
from harness.store import Store


def unpack(store: Store, entry: Entry, folder: Path) -> Path:
    """Write the archived package below a folder. Raises ValueError where it is not there."""
    identifier = entry.document.sealed.get("source", "")
    if not identifier or not store.has("source", identifier):
        raise ValueError(
            f"the source of round {entry.n} is not in the store {store.root}; replay it without "
            "--recorded-code"
        )
    for name, content in store.get(Source, identifier, check=True).arrays.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(
                f"the archived source holds the path {name!r}; it may not leave its folder"
            )
        target = folder / PROJECT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.tobytes())
    # empty files have no bytes to archive, but a package needs its mark
    for parent in {path.parent for path in (folder / PROJECT).rglob("*.py")}:
        if parent.parts[-1] != "kernels":
            (parent / "__init__.py").touch()
    return folder


def run_recorded(store: Store, entry: Entry, arguments: Sequence[str]) -> int:
    """Run `python -m harness` of the archived source; its exit code.

    The code is whatever the store holds under the record's seal: run it where you trust the record.
    """
    with tempfile.TemporaryDirectory(prefix="harness-source-") as scratch:
        folder = unpack(store, entry, Path(scratch))
        if not (folder / PROJECT / "verbs" / f"{arguments[0]}.py").is_file():
            raise ValueError(
                f"the source of round {entry.n} has no verb {arguments[0]!r}; it is older than it"
            )
        paths = [scratch, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-P", "-m", PROJECT, *arguments]
        return subprocess.run(command, env=environment, check=False).returncode
