"""Records of several ranks: who runs one again starts as many, or leads those that are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness import ranks
from harness.config import build
from harness.exactness.recorded import first_model
from harness.fingerprint import apply_flags
from harness.ledger.lineage import Lineage
from harness.store import Store
from harness.world import World


def size_of(document: Mapping[str, Any]) -> int:
    """On how many ranks a configuration is run."""
    return int(document.get("ranks") or 1)


def spread(
    document: Mapping[str, Any], flags: Mapping[str, Any], lineage: Lineage, store: Store,
    words: Sequence[str], lead: Callable[[World], int],
) -> int:  # fmt: skip
    """The exit code of `lead` on the ranks of a configuration.

    flags: what the record's process had set; words: the command that ranks which are started here
    run. Raises ValueError where others than these have been started.
    """
    size, there = size_of(document), ranks.started()
    if size > 1 and there is None:
        threads = max(int(document[part]["threads"]) for part in ("inference", "update"))
        return ranks.start(words, size, threads)
    if (there or 1) != size:
        raise ValueError(
            f"the record is of {size} ranks, and {there} were started; start {size}, or none"
        )
    world = ranks.join(size)
    with ranks.sharing(world):
        if not world.leads:
            apply_flags(flags)
            return ranks.follow(build(document, lineage.name), world, first_model(lineage, store))
        code = lead(world)
        world.call("end")
    return code if size == 1 else ranks.answer(code)
