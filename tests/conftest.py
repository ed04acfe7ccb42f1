"""What several tests need."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct as an ordinary folder: fetched by the first test run on a machine."""
    from filelock import FileLock

    from harness.policies import fetch

    fetch.cache_dir().mkdir(parents=True, exist_ok=True)
    # one process of a parallel run fetches; a process of its own keeps its warnings and its memory
    with FileLock(fetch.cache_dir() / ".lock"):
        code = "from harness.policies.fetch import fetch_smollm2; fetch_smollm2()"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    folder = fetch.smollm2_folder()
    assert folder is not None
    return folder
