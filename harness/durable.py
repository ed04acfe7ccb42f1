"""Files that appear whole or not at all, and that the disk holds before their names exist."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path


def install(path: Path, write: Callable[[Path], object]) -> None:
    """Write a whole file or none, durable before its name exists."""
    fresh = not path.parent.is_dir()
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{uuid.uuid4().hex}")
    try:
        write(scratch)
        sync(scratch)
        scratch.chmod(0o444)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    for folder in path.parents[:4] if fresh else path.parents[:1]:
        sync(folder)


def sync(path: Path) -> None:
    """Have the disk hold what the file or folder holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
