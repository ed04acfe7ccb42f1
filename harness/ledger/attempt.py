"""Work that is not yet, or never became, a record: a run written ahead, with what it has spent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from harness.ending import ASKED, ask, heed
from harness.ledger.connection import retrying
from harness.ledger.entry import NEXT, STATE, Entry

if TYPE_CHECKING:
    from harness.ledger.lineage import Lineage

SPENT = "ledger.spent"
WRITER = "ledger.writer"
ORIGIN = "ledger.origin"
"""Tag of an attempt that came with a bundle."""
ENDED = {"failed": "FAILED", "killed": "KILLED", "beaten": "KILLED", "twin": "FINISHED"}
"""What an attempt can end as, and the status that MLflow shows for it."""


@dataclass(frozen=True)
class Attempt:
    """A round under way on a branch, after a parent. As a context manager it ends as it should."""

    lineage: Lineage
    parent: Entry
    branch: str
    run: str
    artifact_uri: str

    @property
    def n(self) -> int:
        return self.parent.n + 1

    def checkpoint(self, stage: str, cost: Mapping[str, int | float]) -> None:
        """Note what has been spent once a stage is done: all of it so far, not the difference."""
        note = json.dumps({"stage": stage, "cost": dict(cost)}, sort_keys=True)
        retrying(lambda: self.lineage.client.set_tag(self.run, SPENT, note))

    def end(self, state: str) -> None:
        """Mark an attempt that did not become a record."""
        client = self.lineage.client
        retrying(lambda: client.set_tag(self.run, STATE, state))
        retrying(lambda: client.set_terminated(self.run, ENDED[state]))

    def committed(self) -> bool:
        """Whether the parent points here."""
        pointer = self.lineage.client.get_run(self.parent.run).data.params.get(NEXT + self.branch)
        return pointer is not None and pointer.split(":")[0] == self.run

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        run = self.lineage.client.get_run(self.run)
        if run.info.status != "RUNNING" or self.committed():
            return
        killed = kind is not None and not issubclass(kind, Exception)
        self.end("killed" if killed else "failed")


@dataclass(frozen=True)
class Spent:
    """An attempt as the ledger lists it: a lower bound of what it cost."""

    run: str
    n: int
    branch: str
    state: str
    stage: str
    cost: Mapping[str, float]
    status: str
    alive: bool
    origin: str
    """The run that it had where it was made: the same for whoever imported it."""

    @classmethod
    def of(cls, run: Any) -> Spent:
        tags = run.data.tags
        try:
            note = json.loads(tags.get(SPENT, "{}"))
        except ValueError:
            note = {}
        return cls(
            run.info.run_id, int(tags.get("ledger.index", "-1")), tags.get("ledger.branch", "?"),
            tags.get(STATE, "?"), note.get("stage", ""), note.get("cost", {}), run.info.status,
            run.info.status == "RUNNING" and alive(tags.get(WRITER, "")),
            tags.get(ORIGIN, run.info.run_id),
        )  # fmt: skip


def writer() -> str:
    """This process: machine, boot, number and start, so that it is not taken for a later one."""
    return f"{socket.gethostname()} {_boot()} {os.getpid()} {_started(os.getpid())}"


def alive(who: str) -> bool:
    """Whether a writer may still be at work; one of another machine may."""
    parts = who.split(" ")
    if len(parts) != 4:
        return False
    host, boot, process, started = parts
    if host != socket.gethostname():
        return True
    return boot == _boot() and started == _started(int(process)) != "?"


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else "?"


def _started(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "?"


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM as an exception, so that what is under way is marked before the process ends."""

    def stop(number: int, frame: FrameType | None) -> None:
        ask(number)
        heed()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        ASKED.clear()
