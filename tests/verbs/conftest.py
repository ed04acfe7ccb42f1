import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "ledger"))


@pytest.fixture(scope="session")
def lineage_folder(tmp_path_factory):
    """A folder with a ledger of one lineage: three rounds, one rejected, and a failed attempt."""
    import rounds

    from harness.ledger.ledger import Ledger
    from harness.store import Store

    folder = tmp_path_factory.mktemp("verbs")
    ledger = Ledger.open(f"sqlite:///{folder}/mlflow.db")
    store = Store(str(folder / "harness-cas"))
    lineage = ledger.begin("a", rounds.begin(store=store))
    for n in range(3):
        rounds.append(lineage, store=store, accept=n != 1)
    attempt = lineage.attempt(lineage.head())
    attempt.checkpoint("R", {"tokens": 5})
    attempt.end("failed")
    return folder


@pytest.fixture
def call(lineage_folder, monkeypatch, capsys):
    """Run a verb in that folder: exit code, output, errors."""
    from harness.verbs import app

    monkeypatch.chdir(lineage_folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def run(*arguments):
        code = app(list(arguments))
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


@pytest.fixture
def ledger(tmp_path, empty_ledger):
    """A ledger without a lineage, in a folder of its own."""
    import shutil

    from harness.ledger.ledger import Ledger

    shutil.copy(empty_ledger, tmp_path / "mlflow.db")
    return Ledger.open(f"sqlite:///{tmp_path}/mlflow.db")


@pytest.fixture
def ask(recorded_folder, monkeypatch, capfd):
    """Run a verb over real rounds: exit code, output, errors."""
    from harness.verbs import app

    monkeypatch.chdir(recorded_folder)
    # MLflow keeps one connection a URI in a process, so a relative one would lead elsewhere
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{recorded_folder}/mlflow.db")

    def run(*arguments):
        capfd.readouterr()
        code = app(list(arguments))
        out = capfd.readouterr()
        return code, out.out, out.err

    return run
