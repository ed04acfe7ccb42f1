import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def fresh_database(tmp_path_factory):
    """A sqlite file with MLflow's tables, to be copied: making one takes seconds."""
    from harness.ledger.ledger import Ledger

    folder = tmp_path_factory.mktemp("fresh")
    Ledger.open(f"sqlite:///{folder}/mlflow.db", "unused")
    return folder / "mlflow.db"


@pytest.fixture
def ledger(tmp_path, fresh_database):
    import shutil

    from harness.ledger.ledger import Ledger

    shutil.copy(fresh_database, tmp_path / "mlflow.db")
    return Ledger.open(f"sqlite:///{tmp_path}/mlflow.db")
