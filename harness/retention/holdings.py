"""What a folder of values holds, and what of it nothing names."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.ledger.bundle import entries, header, identifiers
from harness.ledger.entry import document_of
from harness.ledger.ledger import GENESIS, Ledger
from harness.ledger.lineage import Lineage
from harness.ledger.record import Broken
from harness.memo import SEED, Folder
from harness.store import NAME, PREFIX, Store

ALL = 3
"""MLflow's view of what was deleted, too: it can be restored."""


@dataclass(frozen=True)
class Held:
    """A value that is there."""

    kind: str
    identifier: str
    size: int
    """Bytes."""
    touched: float
    """When it was last put, in seconds since the epoch."""


def held(store: Store) -> Iterator[Held]:
    """Every value of a store. ValueError where the store does not say how old they are."""
    if (root := store.beside("")) is None:
        raise ValueError(
            f"the store {store.root} does not say how old its values are, so it cannot be told "
            "which of them a writer still needs; give --every, --best or --drop"
        )
    for path in sorted(root.glob(f"*/??/*/{NAME}")):
        # another process may drop it meanwhile
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            kind, _, digits = path.relative_to(root).parts[:3]
            yield Held(kind, PREFIX + digits, stat.st_size, stat.st_mtime)


def everywhere(ledger: Ledger) -> Iterator[Lineage]:
    """The lineages of every experiment beside this one, those too that MLflow can restore."""
    for experiment in ledger.client.search_experiments(view_type=ALL):
        beside = Ledger(ledger.client, ledger.uri, experiment)
        for run in beside.search(f"params.\"{GENESIS}\" LIKE 'sha256:%'", view=ALL):
            yield beside.lineage(run)


def memos(lineage: Lineage, store: Store) -> set[Path]:
    """Where results of a lineage are kept to be found again."""
    own = store.beside("memo")
    places = set() if own is None else {own}
    for branch in ("main", *lineage.forks()):
        config: Any = lineage.head(branch).document.sealed.get("config", {})
        memo = config.get("memo") if isinstance(config, dict) else None
        if isinstance(memo, dict) and memo.get("root"):
            places.add(Path(memo["root"]).expanduser())
    return places


def named(ledger: Ledger, store: Store) -> tuple[set[str], float]:
    """What records, attempts and memo entries name, and since when the oldest round under way has
    been: its values are not all named yet. Raises Broken where a chain cannot be read."""
    names, places, since = set[str](), set[Path](), time.time()
    if (own := store.beside("memo")) is not None:
        places.add(own)
    for lineage in everywhere(ledger):
        for entry in entries(lineage):
            names |= set(identifiers([entry.document.exact, entry.document.sealed]))
        for attempt in lineage.attempts():
            run = lineage.client.get_run(attempt.run)
            if attempt.alive:
                since = min(since, run.info.start_time / 1000)
            with contextlib.suppress(Broken):
                document = document_of(lineage.client, run)
                names |= set(identifiers([document.exact, document.sealed]))
        places |= memos(lineage, store)
    for folder in map(Folder, places):
        for name in SEED:
            for kept in folder.all(name):
                names |= set(identifiers([kept.key, kept.result, *kept.others]))
    return names, since


def orphans(ledger: Ledger, store: Store, grace: float) -> list[Held]:
    """Values that nothing names and that nobody has put for so many seconds, counted back from now
    or from the beginning of the oldest round under way."""
    there = list(held(store))
    names, since = named(ledger, store)
    by_name: dict[str, list[Held]] = {}
    for value in there:
        by_name.setdefault(value.identifier, []).append(value)
    todo = [value for name in names for value in by_name.get(name, ())]
    # a model names its tokenizer and its base; a value, what it was made with
    while todo:
        value = todo.pop()
        with contextlib.suppress(KeyError, ValueError), store.path(*_place(value)) as path:
            more = set(identifiers(header(path))) - names
            names |= more
            todo += [other for name in more for other in by_name.get(name, ())]
    return [v for v in there if v.identifier not in names and v.touched < since - grace]


def _place(value: Held) -> tuple[str, str]:
    return value.kind, value.identifier
