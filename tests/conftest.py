"""What several tests need."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict]:
        """The JSON objects that it printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def run_here(folder: Path, *words: str) -> Said:
    """`python -m harness …` within this process: its imports are paid once."""
    from harness.__main__ import main

    out, err, path = io.StringIO(), io.StringIO(), list(sys.path)
    # MLflow keeps one connection a URI in a process, so a relative one would lead elsewhere
    own = "MLFLOW_TRACKING_URI" not in os.environ
    if own:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    with (
        contextlib.chdir(folder), warnings.catch_warnings(),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.path[:] = path
            if own:
                del os.environ["MLFLOW_TRACKING_URI"]
    return Said(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def here():
    """Runs a command in a folder, within this process, with no ledger but the folder's."""
    before = dict(os.environ)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    yield run_here
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def apart():
    """Starts a command in a folder as a process of its own."""

    def start(folder: Path, *words: str, environment=None, **more) -> subprocess.Popen:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | (environment or {})
        # what rounds within this process have left: the child is no rank of theirs
        for name in ("MLFLOW_TRACKING_URI", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR",
                     "MASTER_PORT"):  # fmt: skip
            env.pop(name, None)
        return subprocess.Popen(
            [sys.executable, "-m", "harness", *words], cwd=folder, env=env, text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        )  # fmt: skip

    return start


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory) -> Path:
    """A sqlite file with MLflow's tables, to be copied: making one takes seconds."""
    from harness.ledger.ledger import Ledger

    folder = tmp_path_factory.mktemp("ledger")
    Ledger.open(f"sqlite:///{folder}/mlflow.db", "unused")
    return folder / "mlflow.db"


@pytest.fixture
def hanging(monkeypatch):
    """The vault hangs at words of more than one letter, within the block."""
    from harness.environments.vault import Vault

    step = Vault.step

    def slow(self, state, action):
        if len(action.text.strip()) > 1:
            time.sleep(20)
        return step(self, state, action)

    @contextlib.contextmanager
    def patched():
        with monkeypatch.context() as patch:
            patch.setattr(Vault, "step", slow)
            yield

    return patched


@pytest.fixture
def project(tmp_path, empty_ledger) -> Path:
    """A folder to run in, whose ledger has no lineage yet."""
    shutil.copy(empty_ledger, tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture(scope="session")
def recorded_folder(tmp_path_factory) -> Path:
    """A folder with a ledger of four real rounds of the tiny model: one lineage, `a`."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from harness import config, runner

    folder = tmp_path_factory.mktemp("recorded")
    words = ["rounds=4", "rollout.attempts=4", "store.snapshot_every=1", "lineage.name=a"]
    words += [f"ledger.uri=sqlite:///{folder}/mlflow.db", "update.gates.kl.budget=0.05"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        made = compose("config", ["+round=quickstart", *words])
    OmegaConf.resolve(made)
    container = OmegaConf.to_container(made)
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert runner.run(config.build(container, "quickstart")) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(scope="session")
def recorded_ledger(recorded_folder):
    """Its ledger, lineage and store."""
    from harness.ledger.ledger import Ledger
    from harness.store import Store

    ledger = Ledger.open(f"sqlite:///{recorded_folder}/mlflow.db", make=False)
    return ledger, ledger.find("a"), Store(str(recorded_folder / "harness-cas"))
