"""A lineage: a chain of records with its branches, its curves, and its attempts."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.ledger import files, projection, record
from harness.ledger.attempt import WRITER, Attempt, Spent, writer
from harness.ledger.connection import optimize, retrying
from harness.ledger.entry import (
    FORK,
    HEAD,
    MAIN,
    NEXT,
    STATE,
    Conflict,
    Entry,
    Fork,
    branch_name,
    folder_of,
    load,
)
from harness.ledger.reader import Reader
from harness.ledger.record import Broken, Document, joined

Step = Callable[[str], None]
"""Called after each step of a commit with its name."""
STATISTICS_EVERY = 2000
"""Commits after which a local database is told to look at how its rows are spread."""


@dataclass(frozen=True)
class Lineage:
    """A lineage by its run. Every method reads the store afresh; nothing is kept in memory."""

    client: Any
    experiment: str
    name: str
    run: str

    @property
    def genesis(self) -> Entry:
        run = self.client.get_run(self.run)
        return load(self.client, run, f"{self.run}:{run.data.params.get('ledger.genesis')}")

    # ---- reading

    def head(self, branch: str = MAIN) -> Entry:
        """The newest record of a branch: from the hint where it leads, else from the genesis."""
        run = self.client.get_run(self.run)
        start = self._hinted(run.data.tags.get(HEAD + branch), branch)
        if start is None:
            *_, start = self.walk(branch)
        while (pointer := start.successors.get(branch)) is not None:
            start = self._follow(pointer)
        return start

    def at(self, n: int, branch: str = MAIN) -> Entry:
        """The record of an index on a branch, by look-up. Raises ValueError where there is none."""
        if n == -1:
            return self.genesis
        forks = self.forks()
        while branch in forks and n <= forks[branch].n:
            branch = forks[branch].branch
        page = self.client.search_runs(
            [self.experiment], f"params.\"ledger.lineage\" = '{self.run}' and "
            f"params.\"ledger.index\" = '{n}' and params.\"ledger.branch\" = '{branch}'",
            run_view_type=3,
        )  # fmt: skip
        for run in page:
            if self.holds(run):
                return load(self.client, run)
        raise ValueError(
            f"the lineage {self.name!r} has no round {n} on branch {branch!r}; its head is round "
            f"{self.head(branch).n}"
        )

    def walk(self, branch: str = MAIN) -> Iterator[Entry]:
        """Every record from the genesis to the head of a branch. Raises Broken where it breaks."""
        forks = self.forks()
        if branch != MAIN and branch not in forks:
            raise ValueError(
                f"the lineage {self.name!r} has no branch {branch!r}; it has {[MAIN, *forks]}"
            )
        legs: list[tuple[str, Fork | None]] = [(branch, None)]
        while (name := legs[0][0]) != MAIN:
            if len(legs) > len(forks):
                raise Broken(f"the branches of {self.name!r} fork from one another in a circle")
            legs.insert(0, (forks[name].branch, forks[name]))
        entry, reader = self.genesis, Reader(self)
        yield entry
        for name, stop in legs:
            while stop is None or entry.n < stop.n:
                if (pointer := entry.successors.get(name)) is None:
                    break
                if (run := reader.run(pointer.split(":")[0])) is None:
                    raise Broken(f"the record {pointer} is gone: its run cannot be read")
                entry = load(self.client, run, pointer, reader.record(run))
                yield entry
            if stop is not None and entry.pointer != stop.pointer:
                raise Broken(f"branch {name!r} does not hold the fork point {stop.pointer}")

    def forks(self) -> dict[str, Fork]:
        """The branches beside main, and where each begins."""
        params = self.client.get_run(self.run).data.params
        named = {k.removeprefix(FORK): v for k, v in params.items() if k.startswith(FORK)}
        return {name: Fork.parse(text) for name, text in named.items()}

    def attempts(self) -> list[Spent]:
        """Work that is not in the chain, oldest first, with what it had spent by its last note."""
        found: list[Any] = []
        token = None
        while token is not None or not found:
            page = self.client.search_runs(
                [self.experiment], f"tags.\"mlflow.parentRunId\" = '{self.run}' "
                f"and tags.\"{STATE}\" != 'committed'", run_view_type=3,
                max_results=1000, order_by=["attributes.start_time ASC"], page_token=token,
            )  # fmt: skip
            found += page
            if (token := page.token) is None:
                break
        return [Spent.of(run) for run in found if not self.holds(run)]

    def totals(self, branch: str = MAIN) -> dict[str, dict[str, float]]:
        """Costs so far: of the chain (exact), what of them was found in the memo and not spent, and
        of the attempts (a lower bound)."""
        sealed = self.head(branch).document.sealed
        lost: dict[str, float] = {}
        for attempt in self.attempts():
            for name, value in attempt.cost.items():
                lost[name] = joined(name, lost.get(name, 0), value)
        known = {"committed": sealed.get("totals", {}), "avoided": sealed.get("avoided", {})}
        named = {part: {k: float(v) for k, v in cost.items()} for part, cost in known.items()}
        return named | {"attempts": lost}

    # ---- writing

    def attempt(self, parent: Entry, branch: str = MAIN) -> Attempt:
        """Write a run ahead for the round after `parent`: what is spent now is not lost."""
        n = parent.n + 1
        tags = {
            "mlflow.parentRunId": self.run, STATE: "attempt", WRITER: writer(),
            "ledger.branch": branch_name(branch), "ledger.index": str(n),
            "ledger.parent_run": parent.run,
        }  # fmt: skip
        where = "" if branch == MAIN else f"{branch}/"
        run = retrying(lambda: self.client.create_run(
            self.experiment, tags=tags, run_name=f"{self.name}/{where}{n:05d}"
        ))  # fmt: skip
        return Attempt(self, parent, branch, run.info.run_id, folder_of(self.client, run))

    def append(
        self, parent: Entry, exact: Mapping[str, Any], sealed: Mapping[str, Any], *,
        branch: str = MAIN, artifacts: Mapping[str, bytes] | None = None,
        attempt: Attempt | None = None, step: Step = lambda name: None,
    ) -> Entry:  # fmt: skip
        """Append the record after `parent`.

        exact: Record.exact(). sealed: JSON; `metered` (dimension to float), `metrics` (flat, name
        to float) and `params` (shown beside the identifiers) are projected. Raises Conflict where
        another writer's record took the place; one of equal identity is returned as if ours.
        """
        pages = {name: bytes(data) for name, data in (artifacts or {}).items()}
        digests = {k: "sha256:" + hashlib.sha256(v).hexdigest() for k, v in pages.items()}
        document = record.following(parent.document, branch, exact, sealed, digests)
        ours = attempt or self.attempt(parent, branch)
        self._prepare(ours, document, pages, step)
        return self.commit(ours, document, step)

    def commit(self, ours: Attempt, document: Document, step: Step = lambda name: None) -> Entry:
        """Have the parent point to a run whose record is complete: the one step that counts."""
        entry, parent, branch = Entry(ours.run, document, {}), ours.parent, ours.branch
        if branch not in (MAIN, parent.branch):
            self._fork(branch, parent)
        taken = self._swap(parent.run, NEXT + branch, entry.pointer)
        step("committed")
        if taken != entry.pointer:
            winner = self._follow(taken)
            cost = {**document.exact["c"], **document.sealed.get("metered", {})}
            ours.checkpoint("A", {name: float(value) for name, value in cost.items()})
            twin = winner.identity == document.identity
            ours.end("twin" if twin else "beaten")
            if not twin:
                raise Conflict(winner)
            return winner
        self.show(entry)
        step("shown")
        self.finish(entry)
        if entry.n % STATISTICS_EVERY == STATISTICS_EVERY - 1:
            optimize(self.client.tracking_uri)
        return entry

    def show(self, entry: Entry) -> None:
        """Write the curves' points and the head hint of a committed record, once each."""
        self._batch(self.run, metrics=projection.on_lineage(entry.document), step=entry.n,
                    tags={HEAD + entry.branch: entry.run})  # fmt: skip

    def finish(self, entry: Entry) -> None:
        """Mark the run of a committed record as one."""
        retrying(lambda: self.client.set_tag(entry.run, STATE, "committed"))
        retrying(lambda: self.client.set_terminated(entry.run, "FINISHED"))

    def points(self, n: int, named: Mapping[str, float]) -> None:
        """Points of the lineage's curves at a step."""
        self._batch(self.run, metrics=named, step=n)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Show the lineage's run as running for a while, and then as what came of it."""
        self._status("RUNNING")
        ended = "KILLED"
        try:
            yield
            ended = "FINISHED"
        except Exception:
            ended = "FAILED"
            raise
        finally:
            self._status(ended)

    def _status(self, status: str) -> None:
        retrying(lambda: self.client.update_run(self.run, status=status))

    def outside(self, entry: Entry, name: str, value: float) -> None:
        """A curve that is measured after the commit and stands in no record: harness/seconds."""
        where = "" if entry.branch == MAIN else f"{entry.branch}/"
        self._batch(self.run, metrics={where + name: value}, step=entry.n)

    def describe(self, ours: Attempt, document: Document) -> None:
        """Write the params and metrics of a record on its run."""
        shown = projection.params(document) | {
            "ledger.lineage": self.run, "ledger.parent_run": ours.parent.run,
        }  # fmt: skip
        card = files.read(ours.artifact_uri, "card.md")
        note = {} if card is None else {"mlflow.note.content": card.decode()}
        self._batch(ours.run, shown, projection.metrics(document), step=document.n, tags=note)

    def _prepare(
        self, ours: Attempt, document: Document, pages: Mapping[str, bytes], step: Step
    ) -> None:
        """Everything of a record but its commit."""
        projection.params(document), projection.metrics(document)  # what cannot be shown raises
        step("begun")
        files.write(ours.artifact_uri, {files.RECORD: document.encoded, **pages})
        if files.read(ours.artifact_uri, files.RECORD) != document.encoded:
            raise OSError(f"run {ours.run} does not give back the record that was written to it")
        step("written")
        self.describe(ours, document)
        step("described")

    def _fork(self, branch: str, parent: Entry) -> None:
        fork = Fork(parent.branch, parent.n, parent.pointer)
        taken = self._swap(self.run, FORK + branch, str(fork))
        if taken != str(fork):
            there = Fork.parse(taken)
            raise ValueError(
                f"branch {branch!r} already begins after round {there.n} of {there.branch!r}; "
                "choose another name"
            )

    def _swap(self, run: str, name: str, value: str) -> str:
        """Write a param once; whoever wrote it, its value. MLflow's own compare-and-swap."""
        from mlflow.exceptions import MlflowException

        try:
            retrying(lambda: self.client.log_param(run, name, value))
        except MlflowException:
            taken = self.client.get_run(run).data.params.get(name)
            if taken is None:
                raise
            return str(taken)
        return value

    def _batch(
        self, run: str, params: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None, *, step: int = 0,
        tags: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        from mlflow.entities import Metric, Param, RunTag

        now = int(time.time() * 1000)
        retrying(lambda: self.client.log_batch(
            run, [Metric(k, v, now, step) for k, v in (metrics or {}).items()],
            [Param(k, v) for k, v in (params or {}).items()],
            [RunTag(k, v) for k, v in (tags or {}).items()],
        ))  # fmt: skip

    def _follow(self, pointer: str) -> Entry:
        from mlflow.exceptions import MlflowException

        try:
            run = self.client.get_run(pointer.split(":")[0])
        except MlflowException as error:
            raise Broken(f"the record {pointer} is gone: its run cannot be read") from error
        return load(self.client, run, pointer)

    def _hinted(self, run_id: str | None, branch: str) -> Entry | None:
        """The entry that a hint names, if its parent points to it on this branch."""
        from mlflow.exceptions import MlflowException

        try:
            run = self.client.get_run(run_id or "")
            if run.data.params.get("ledger.lineage") != self.run:
                return None
            parent = self.client.get_run(run.data.params.get("ledger.parent_run", ""))
            pointer = parent.data.params.get(NEXT + branch)
            return None if pointer is None else load(self.client, run, pointer)
        except (MlflowException, Broken):
            return None

    def holds(self, run: Any) -> bool:
        """Whether a run is a record, whatever its tags say: its parent points to it."""
        from mlflow.exceptions import MlflowException

        own = {**run.data.tags, **run.data.params}
        try:
            parent = self.client.get_run(own.get("ledger.parent_run", ""))
        except MlflowException:
            return False
        pointer = parent.data.params.get(NEXT + own.get("ledger.branch", ""))
        return pointer is not None and pointer.split(":")[0] == run.info.run_id
