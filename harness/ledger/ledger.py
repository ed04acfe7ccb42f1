"""The ledger L of a project: its lineages in one MLflow experiment."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.ledger import connection, files, projection
from harness.ledger.attempt import WRITER, writer
from harness.ledger.connection import retrying
from harness.ledger.entry import folder_of
from harness.ledger.lineage import Lineage
from harness.ledger.record import Document, spelt

NAME = "ledger.name"
GENESIS = "ledger.genesis"
VOID = "void"
PATIENCE = 10.0
"""Seconds that an earlier, silent creator of the same lineage is waited for."""


@dataclass(frozen=True)
class Ledger:
    """An experiment of lineages."""

    client: Any
    uri: str
    experiment: Any

    @classmethod
    def open(
        cls, uri: str | None = None, experiment: str = "harness", *, make: bool = True
    ) -> Ledger:
        """Open or make the store and the experiment; safe for several processes at once.

        Raises ValueError where the store cannot be used or, without `make`, is not there.
        """
        uri = connection.tracking_uri(uri)
        if not make and not connection.present(uri):
            raise ValueError(
                f"there is no ledger at {uri!r}; run a round first, or say where it is with "
                "MLFLOW_TRACKING_URI"
            )
        client = connection.connect(uri)
        with connection.first_contact(uri):
            return cls(client, uri, connection.experiment(client, uri, experiment, make))

    @property
    def content_root(self) -> str:
        """Where values lie by default: beside the database, or beside MLflow's artifacts."""
        if (folder := connection.folder_of(self.uri)) is not None:
            same = folder == Path.cwd()
            return "harness-cas" if same else str(folder / "harness-cas")
        location = files.reachable(self.experiment.artifact_location, self.uri)
        return f"{location.rstrip('/')}/harness-cas"

    def lineages(self) -> list[Lineage]:
        """Every lineage, the newest first."""
        return [self.lineage(run) for run in self.search(f"params.\"{GENESIS}\" LIKE 'sha256:%'")]

    def find(self, name: str) -> Lineage | None:
        """The lineage of a name, if there is one."""
        for run in self._named(name):
            if run.data.params.get(GENESIS, VOID) != VOID:
                return self.lineage(run)
        return None

    def begin(
        self, name: str, exact: Mapping[str, Any], sealed: Mapping[str, Any] | None = None, *,
        tags: Mapping[str, str] | None = None,
    ) -> Lineage:  # fmt: skip
        """Find or create a lineage. Raises ValueError where it began with another genesis.

        exact: record.genesis(…). sealed: JSON; `params` are shown on the lineage run.
        """
        document = Document(None, None, dict(exact), spelt(sealed or {}) | {"branch": "main"})
        lineage = self.find(_lineage_name(name)) or self._create(name, document, tags or {})
        if lineage.genesis.identity != document.identity:
            raise ValueError(
                f"the lineage {name!r} began with {lineage.genesis.identity[:19]}…, these settings "
                f"begin with {document.identity[:19]}…; give another lineage name (lineage.name)"
            )
        return lineage

    def _create(self, name: str, document: Document, tags: Mapping[str, str]) -> Lineage:
        """Write a candidate ahead, then elect: of all candidates of a name one is confirmed.

        A candidate is visible before it looks for others. It outlives every earlier one (by age,
        then run) only if that one is void or silent too long, and voids every later one: a run is
        confirmed or void by one write-once param, so two can never both be confirmed.
        """
        described = {**tags, "ledger.kind": "lineage", WRITER: writer()}
        run = retrying(lambda: self.client.create_run(
            self.experiment.experiment_id, tags=described, run_name=name
        ))  # fmt: skip
        lineage = self.lineage(run, name)
        files.write(folder_of(self.client, run), {files.RECORD: document.encoded})
        lineage._batch(run.info.run_id, {**projection.params(document), NAME: name})
        while True:
            elected = self._elect(lineage, document.seal)
            if elected is None:
                return self._create(name, document, tags)
            if elected.run != run.info.run_id:
                self._discard(lineage)
            return elected

    def _elect(self, own: Lineage, seal: str) -> Lineage | None:
        """The confirmed lineage of a name; None where our candidate was voided and none stands."""
        rows = sorted(self._named(own.name), key=lambda r: (r.info.start_time, r.info.run_id))
        earlier = True
        for run in rows:
            if run.info.run_id == own.run:
                earlier = False
                continue
            verdict = self._await(run.info.run_id) if earlier else None
            verdict = verdict or own._swap(run.info.run_id, GENESIS, VOID)
            if verdict != VOID:
                return self.lineage(run)
        if own._swap(own.run, GENESIS, seal) == seal:
            return own
        self._discard(own)
        time.sleep(random.uniform(0.01, 0.1))
        return self.find(own.name)

    def _await(self, run: str) -> str | None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if verdict := self.client.get_run(run).data.params.get(GENESIS):
                return str(verdict)
            time.sleep(0.02)
        return None

    def _discard(self, candidate: Lineage) -> None:
        """Take an empty candidate that lost out of sight."""
        candidate._swap(candidate.run, GENESIS, VOID)
        self.client.set_terminated(candidate.run, "KILLED")
        self.client.delete_run(candidate.run)

    def _named(self, name: str) -> list[Any]:
        return self.search(f"params.\"{NAME}\" = '{name}'")

    def search(self, filter_string: str, view: int = 1) -> list[Any]:
        """The runs of the experiment that a filter finds, the newest first; view: MLflow's."""
        found: list[Any] = []
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment.experiment_id], filter_string, run_view_type=view,
                max_results=1000, page_token=token,
            )  # fmt: skip
            found += page
            if (token := page.token) is None:
                return found

    def lineage(self, run: Any, name: str | None = None) -> Lineage:
        """The lineage of a run."""
        return Lineage(
            self.client, self.experiment.experiment_id, name or run.data.params[NAME],
            run.info.run_id,
        )  # fmt: skip


def _lineage_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._=,:/+\-\[\]]{0,199}", name):
        raise ValueError(
            f"{name!r} cannot be a lineage name; give letters, digits, spaces and ._=,:/+-[], "
            "at most 200"
        )
    return name
