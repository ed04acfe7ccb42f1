"""What is built from a checkout runs outside of it."""

import os
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LITTER = shutil.ignore_patterns(
    ".git", ".venv", "*.egg-info", "build", "dist", "__pycache__", ".*_cache", "results",
    "harness-cas", "mlartifacts", "mlflow.db*",
)  # fmt: skip
HOOK = "import setuptools.build_meta as b, sys; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"


def alone(**more):
    """The environment without a way to the checkout, and without ranks that others have started."""
    names = ("PYTHONPATH", "MLFLOW_TRACKING_URI", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")
    return {k: v for k, v in os.environ.items() if k not in names} | {"OMP_NUM_THREADS": "1"} | more


def build(kind, source, target):
    """A distribution by setuptools' own hook: what pip calls, without its download."""
    subprocess.run([sys.executable, "-c", HOOK, kind, str(target)], cwd=source, env=alone(),
                   check=True, capture_output=True)  # fmt: skip
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    source = tmp_path_factory.mktemp("checkout") / "harness"
    shutil.copytree(ROOT, source, symlinks=True, ignore=LITTER)
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Of what the source distribution holds, so that it is known to be whole."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_what_the_symlinks_stand_for(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (*(ROOT / "conf").rglob("*.yaml"), *(ROOT / "sweeps").glob("*.yaml")):
        folder = "conf" if path.is_relative_to(ROOT / "conf") else "conf/sweeps"
        top = ROOT / folder if folder == "conf" else ROOT / "sweeps"
        assert f"harness/{folder}/{path.relative_to(top)}" in names
    for path in (ROOT / "kernels").rglob("*"):
        if path.suffix == ".py" or path.name == "README.md":
            assert f"harness/kernels/{path.relative_to(ROOT / 'kernels')}" in names
    assert "harness/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"harness"}


def test_the_source_distribution_has_real_folders_and_the_licence(sdist):
    with tarfile.open(sdist) as archive:
        members = {m.name.partition("/")[2]: m for m in archive.getmembers()}
    for name in ("LICENSE", "README.md", "pyproject.toml", "harness/conf/config.yaml",
                 "harness/kernels/policy_rows/reference.py"):  # fmt: skip
        assert members[name].isfile(), name


def test_an_installed_wheel_runs_a_round_outside_the_checkout(wheel, tmp_path):
    # the environment is fresh for our wheel alone: its dependencies are those of the environment of
    # these tests, through a .pth, because downloading torch once more would test nothing of ours.
    # .pth files of a folder that a .pth names are not read, so an editable install here is not seen
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(home), "install", "--no-deps",
                    "--no-index", "--quiet", str(wheel)], env=alone(), check=True)  # fmt: skip
    work = tmp_path / "work"
    work.mkdir()
    python = str(home / "bin" / "python")
    words = ("+round=quickstart", "rounds=2", "rollout.attempts=4")
    done = subprocess.run([python, "-m", "harness", *words], cwd=work, env=alone(),
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 rounds" in done.stdout
    assert sorted(p.name for p in work.iterdir()) == ["harness-cas", "mlartifacts", "mlflow.db"]
    where = "import harness.runner as r, harness.kernels.policy_rows as k; print(r, k)"
    told = subprocess.run([python, "-c", where], cwd=work, env=alone(), capture_output=True,
                          text=True, check=True).stdout  # fmt: skip
    assert told.count(str(packages)) == 2
    listed = subprocess.run([python, "-m", "harness", "--cfg", "job", "+sweeps=gates"], cwd=work,
                            env=alone(), capture_output=True, text=True)  # fmt: skip
    assert listed.returncode == 0, listed.stderr


# a spawned rank has the checkout on its path and is safe from its folder
PLACES = {
    "root": ({}, ROOT),
    "elsewhere": ({"PYTHONPATH": str(ROOT)}, Path("/")),
    "rank": ({"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}, ROOT),
}


@pytest.mark.parametrize("place", PLACES)
def test_our_kernels_hide_no_package_of_that_name(place):
    more, folder = PLACES[place]
    code = (
        "import importlib.util, harness.__main__ as m; m.isolate(); "
        "found = importlib.util.find_spec('kernels'); "
        "print(found and list(found.submodule_search_locations or [])); "
        "import harness.kernels.policy_rows, harness.accounting.standard"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=alone(**more),
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout
