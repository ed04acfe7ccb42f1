"""A whole chain run again, each round from the state that the one before it gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.exactness.recorded import Recorded, config_of, session_of
from harness.exactness.replay import STAGES, Replayed, replay
from harness.identity import canonical
from harness.ledger.ledger import Ledger
from harness.ledger.lineage import Lineage
from harness.runner import Session
from harness.store import Store


def replay_chain(
    ledger: Ledger, lineage: Lineage, branch: str, store: Store, stages: Sequence[str] = STAGES
) -> Iterator[tuple[Recorded, Replayed]]:
    """Every round of a branch in order. Rounds of one configuration share a session."""
    sessions: dict[bytes, Session] = {}
    state = None
    for entry in lineage.walk(branch):
        if entry.n < 0:
            continue
        document = config_of(entry)
        maps = {k: v for k, v in document.items() if k not in ("rounds", "lineage", "budget")}
        key = canonical(maps)
        if key not in sessions:
            sessions = {key: session_of(ledger, lineage, document, store)}
        recorded = Recorded.open(ledger, lineage, entry, store=store, session=sessions[key])
        found = replay(recorded, stages, state=state)
        state = found.resulting
        yield recorded, found
