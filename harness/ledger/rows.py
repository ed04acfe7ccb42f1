"""Many runs, or a whole curve, at once: from MLflow's tables where the store is a database.

Through a server they come as MLflow's own pages. From a database MLflow would make an object of
each param, tag and metric, and skip all earlier pages to find the next: here they are plain rows,
of the tables that MLflow's own models describe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

PARENT = "mlflow.parentRunId"


@dataclass(slots=True)
class Info:
    run_id: str
    status: str
    lifecycle_stage: str
    artifact_uri: str


@dataclass(slots=True)
class Data:
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """What the ledger asks of an MLflow run."""

    info: Info
    data: Data


def pages(client: Any, experiment: str, parent: str, size: int) -> Iterator[Sequence[Any]]:
    """The runs under a parent, deleted ones too, the oldest first."""
    if (engine := _engine(client)) is None:
        yield from _searched(client, experiment, parent, size)
        return
    from mlflow.store.tracking.dbmodels.models import SqlRun, SqlTag
    from sqlalchemy import select

    with engine.connect() as connection:
        found = connection.execute(
            select(SqlRun.run_uuid).join(SqlTag, SqlTag.run_uuid == SqlRun.run_uuid)
            .where(SqlTag.key == PARENT, SqlTag.value == parent)
            .where(SqlRun.experiment_id == int(experiment))
            .order_by(SqlRun.start_time, SqlRun.run_uuid)
        ).scalars().all()  # fmt: skip
    for start in range(0, len(found), size):
        yield _rows(engine, found[start : start + size])


def history(client: Any, run: str, name: str) -> Iterator[tuple[int, float]]:
    """The points of a curve, step and value, in any order."""
    if (engine := _engine(client)) is None:
        for point in client.get_metric_history(run, name):
            yield point.step, point.value
        return
    from mlflow.store.tracking.dbmodels.models import SqlMetric as Point
    from sqlalchemy import select

    with engine.connect() as connection:
        rows = connection.execute(
            select(Point.step, Point.value, Point.is_nan)
            .where(Point.run_uuid == run, Point.key == name)
        )  # fmt: skip
        for step, value, is_nan in rows:
            yield step, math.nan if is_nan else value


def rehome(client: Any, experiment: str, old: str, new: str) -> None:
    """Have the artifacts of an experiment be looked for below another location."""
    from mlflow.store.tracking.dbmodels.models import SqlExperiment, SqlRun
    from sqlalchemy import func, literal, update

    if (engine := _engine(client)) is None:
        raise ValueError("a server's artifacts are moved by whoever runs the server")
    columns: tuple[tuple[Any, Any], ...] = (
        (SqlRun, SqlRun.artifact_uri), (SqlExperiment, SqlExperiment.artifact_location),
    )  # fmt: skip
    with engine.begin() as connection:
        for table, column in columns:
            connection.execute(
                update(table).where(table.experiment_id == int(experiment))
                .where(func.substr(column, 1, len(old)) == old)
                .values({column: literal(new).concat(func.substr(column, len(old) + 1))})
            )  # fmt: skip


def _engine(client: Any) -> Any:
    """The database behind a client, None where it is behind a server."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = client._tracking_client.store
    return store.engine if isinstance(store, SqlAlchemyStore) else None


def _rows(engine: Any, names: Sequence[str]) -> list[Run]:
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlRun, SqlTag
    from sqlalchemy import select

    def of(*columns: Any) -> Any:
        return connection.execute(select(*columns).where(columns[0].in_(names)))

    with engine.connect() as connection:
        own = (SqlRun.run_uuid, SqlRun.status, SqlRun.lifecycle_stage, SqlRun.artifact_uri)
        runs = {row[0]: Run(Info(*row), Data()) for row in of(*own)}
        for name, key, value in of(SqlParam.run_uuid, SqlParam.key, SqlParam.value):
            runs[name].data.params[key] = value
        for name, key, value in of(SqlTag.run_uuid, SqlTag.key, SqlTag.value):
            runs[name].data.tags[key] = value
        last = SqlLatestMetric
        for name, key, value, is_nan in of(last.run_uuid, last.key, last.value, last.is_nan):
            runs[name].data.metrics[key] = math.nan if is_nan else value
    return [runs[name] for name in names if name in runs]


def _searched(client: Any, experiment: str, parent: str, size: int) -> Iterator[Sequence[Any]]:
    token = None
    while True:
        page = client.search_runs(
            [experiment], f"tags.\"{PARENT}\" = '{parent}'", run_view_type=3, max_results=size,
            page_token=token, order_by=["attributes.start_time ASC"],
        )  # fmt: skip
        yield page
        if (token := page.token) is None:
            return
