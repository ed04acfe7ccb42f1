import os
import subprocess
import sys

import pytest
import rounds

from harness.ledger import connection
from harness.ledger.ledger import Ledger


@pytest.mark.parametrize("uri", ["file:///tmp/x", "mlruns", "./mlruns", "/tmp/mlruns"])
def test_an_old_file_store_is_refused_with_the_command_that_helps(uri):
    with pytest.raises(ValueError, match="run `mlflow migrate-filestore` and give the database"):
        Ledger.open(uri)


def test_the_environment_names_the_store_and_the_default_is_what_plain_mlflow_opens(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "mlruns")
    with pytest.raises(ValueError, match="'mlruns' names an old file store"):
        connection.tracking_uri()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert connection.tracking_uri() == "sqlite:///mlflow.db"
    with pytest.raises(ValueError, match="is of no kind that MLflow serves"):
        connection.tracking_uri("ftp://x/y")


def test_folders_that_cannot_hold_a_database_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"lies in no folder; make .*/none first"):
        Ledger.open(f"sqlite:///{tmp_path}/none/mlflow.db")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(ValueError, match="cannot be written to; run where you may write"):
        Ledger.open(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_file_that_is_no_database_and_a_server_that_is_silent_are_one_sentence(
    tmp_path, monkeypatch
):
    (tmp_path / "mlflow.db").write_text("hello" * 1000)
    with pytest.raises(ValueError, match="does not answer"):
        Ledger.open(f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ValueError, match=r"http://127\.0\.0\.1:9' does not answer"):
        Ledger.open("http://127.0.0.1:9")


def test_reading_makes_nothing(tmp_path, ledger):
    with pytest.raises(ValueError, match="there is no ledger at"):
        Ledger.open(f"sqlite:///{tmp_path}/other.db", make=False)
    with pytest.raises(ValueError, match="has no experiment 'other'"):
        Ledger.open(ledger.uri, "other", make=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlflow.db"]


def test_a_deleted_experiment_is_named_with_the_way_back(ledger):
    ledger.client.delete_experiment(ledger.experiment.experiment_id)
    with pytest.raises(ValueError, match="was deleted; run `mlflow experiments restore -x"):
        Ledger.open(ledger.uri)


def test_a_lineage_begins_once_and_only_with_its_own_genesis(ledger):
    one = ledger.begin("a", rounds.begin(), tags={"harness.store": "there"})
    assert ledger.begin("a", rounds.begin()).run == one.run
    assert ledger.find("b") is None
    with pytest.raises(ValueError, match="give another lineage name"):
        ledger.begin("a", rounds.begin(root="2"))
    with pytest.raises(ValueError, match="cannot be a lineage name"):
        ledger.begin("it's", rounds.begin())
    assert [line.name for line in ledger.lineages()] == ["a"]


def test_a_creator_that_died_is_not_waited_for_for_ever(ledger, monkeypatch):
    from harness.ledger import ledger as module

    monkeypatch.setattr(module, "PATIENCE", 0.1)
    dead = ledger.client.create_run(ledger.experiment.experiment_id)
    ledger.client.log_param(dead.info.run_id, module.NAME, "a")
    lineage = ledger.begin("a", rounds.begin())
    assert lineage.run != dead.info.run_id
    assert ledger.find("a").run == lineage.run


def test_opening_says_nothing_and_reports_nothing(tmp_path):
    code = "from harness.ledger.ledger import Ledger; Ledger.open()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")
    assert [p.name for p in tmp_path.iterdir()] == ["mlflow.db"]
