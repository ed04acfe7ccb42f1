"""The episodes of a lineage's records, driven again: a sample of them, or all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness import config
from harness.exactness.redrive import findings, sample_of
from harness.identity import Version
from harness.ledger.checks import Finding
from harness.ledger.entry import MAIN, Entry
from harness.ledger.lineage import Lineage
from harness.round import Seed
from harness.store import Store

RECORDS, EPISODES = 16, 4
"""How many records are looked at, and episodes in each, where not all are."""


def of_lineage(
    lineage: Lineage, store: Store, places: Sequence[tuple[str, int]], deep: bool = False
) -> Iterator[Finding | str]:  # fmt: skip
    """A finding for every episode that is not what its environment gives; a note where none can be.

    places: branch and index of the records there are. Only environments of this package are made:
    a configuration may come from somebody else.
    """
    notes: dict[str, str] = {}
    for entry in _entries(lineage, sorted(place for place in places if place[1] >= 0), deep):
        branch, n = entry.branch, entry.n
        where = f"{lineage.name}@{n}" if branch == MAIN else f"{lineage.name}@{branch}@{n}"
        document = entry.document.sealed.get("config")
        there = all(store.has(*pair) for pair in _values(entry))
        if document is None or not there:
            continue
        try:
            environment = config.make(document["environment"], ("harness.",), "environment")
        except ValueError as error:
            notes.setdefault(str(error), f"{where} was not driven again: {error}")
            continue
        version = Version.of(environment).exact()
        if version != entry.document.exact["upsilon"]:
            text = f"{where} was not driven again: its environment is now {version['name']}"
            notes.setdefault(version["settings"], text)
            continue
        X, Z = (store.get(*pair) for pair in _values(entry))
        roll = Seed(entry.document.exact["omega"]["roll"])
        size = 0 if deep else EPISODES
        for sentence in findings(environment, X, Z, roll, size=size, key=entry.seal):
            yield Finding(where, "Z driven again", "the recorded turns", sentence)
    yield from notes.values()


def _entries(lineage: Lineage, rounds: list[tuple[str, int]], deep: bool) -> Iterator[Entry]:
    if not deep:
        for i in sample_of(len(rounds), RECORDS, lineage.run):
            branch, n = rounds[i]
            yield lineage.at(n, branch)
        return
    wanted = set(rounds)
    for branch in sorted({branch for branch, _ in rounds}):
        own = (entry for entry in lineage.walk(branch) if entry.branch == branch)
        yield from (entry for entry in own if (branch, entry.n) in wanted)


def _values(entry: Entry) -> list[tuple[str, str]]:
    exact = entry.document.exact
    return [("instance", exact["X"]), ("trajectories", exact["Z"])]
