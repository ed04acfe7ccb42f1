import math

import pytest
import rounds

from harness.ledger import rows


@pytest.fixture
def lineage(ledger):
    lineage = ledger.begin("a", rounds.begin())
    for n in range(5):
        rounds.append(lineage, accept=n != 1)
    lineage.attempt(lineage.head()).end("failed")
    ledger.client.delete_run(lineage.at(2).run)
    rounds.append(ledger.begin("b", rounds.begin()))
    return lineage


def spelt(run):
    metrics = {k: str(v) for k, v in run.data.metrics.items()}
    info = run.info
    own = (info.run_id, info.status, info.lifecycle_stage, info.artifact_uri)
    return own, dict(run.data.params), dict(run.data.tags), metrics


@pytest.mark.parametrize("size", [1, 2, 6, 100])
def test_runs_read_from_the_tables_are_those_that_mlflow_gives(lineage, size):
    given = (lineage.client, lineage.experiment, lineage.run, size)
    pages, searched = list(rows.pages(*given)), list(rows._searched(*given))
    assert [len(page) for page in pages] == [len(page) for page in searched if page]
    found = [spelt(run) for page in pages for run in page]
    assert len(found) == 6
    assert found == [spelt(run) for page in searched for run in page]


def test_a_curve_read_from_the_tables_is_the_one_that_mlflow_gives(lineage):
    for name in lineage.client.get_run(lineage.run).data.metrics:
        found = [(step, str(value)) for step, value in rows.history(
            lineage.client, lineage.run, name
        )]  # fmt: skip
        points = lineage.client.get_metric_history(lineage.run, name)
        assert sorted(found) == sorted((p.step, str(p.value)) for p in points)
        assert len(found) == 5
    assert all(math.isnan(v) for _, v in rows.history(lineage.client, lineage.run, "reward/std"))
