"""The oldest Triton that is supported compiles and interprets every kernel, as the newest does.

The other tests of this folder run with the Triton that is installed. Here 3.6 is put in front of
it, with the numpy that its interpreter needs (its loops fail from numpy 2.4 on).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OLDEST = ("triton==3.6.*", "numpy>=2,<2.4")


def run(*command: str, path: str) -> str:
    """Its output, in an environment whose modules come from `path` first."""
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, cwd=HERE
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_the_oldest_triton_compiles_and_interprets_every_kernel(tmp_path: Path) -> None:
    target = str(tmp_path / "packages")
    run("-m", "pip", "install", "-q", "--no-deps", "--target", target, *OLDEST, path="")
    path = os.pathsep.join((target, str(HERE.parents[1])))
    version = run("-c", "import triton; print(triton.__version__)", path=path)
    assert version.startswith("3.6.")
    pytest_ = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider")
    tests = [str(HERE / name) for name in ("test_aot.py", "test_interpreted.py")]
    assert " passed" in run(*pytest_, *tests, path=path)
