"""Which states of a lineage stay.

A policy keeps the first, the head of every branch, every k-th, and the one whose episodes earned
the most. Of the others those go that U gives again: it was shown to on this platform, its Γ is
there, and one version of it leads there from a state that stays. They can be had as before, later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.identity import canonical
from harness.ledger.content import STATE
from harness.ledger.entry import MAIN, Entry
from harness.ledger.lineage import Lineage
from harness.store import Store

Certified = Callable[[Mapping[str, Any]], bool]
"""Whether updates of a version come out the same again, here."""
NO_WAY = b""
"""No version of U leads here."""


@dataclass(frozen=True)
class Policy:
    """Which states of a lineage stay."""

    every: int = 0
    """Every how many rounds; 0: none but the first and the heads."""
    best: bool = False
    """The state with which the episodes with the highest mean reward were sampled."""

    def wants(self, chain: list[Entry]) -> set[int]:
        """Places of a chain whose states stay, the genesis at 0."""
        kept = {0, len(chain) - 1}
        if self.every:
            kept |= {i for i in range(len(chain)) if i % self.every == 0}
        if self.best:
            rewards = {
                i: chain[i + 1].document.sealed.get("metrics", {}).get("reward/mean", float("-inf"))
                for i in range(len(chain) - 1)
            }
            kept |= {max(rewards, key=lambda i: rewards[i])} if rewards else set()
        return kept


def surplus(
    lineage: Lineage, store: Store, policy: Policy, certified: Certified
) -> tuple[set[tuple[str, str]], set[tuple[str, str]], int]:
    """(kept, surplus) states of a lineage as kinds and identifiers, and how many of those that the
    policy would drop stay because they cannot be computed again."""
    kept, loose, stuck = set[tuple[str, str]](), set[tuple[str, str]](), set[str]()
    for branch in (MAIN, *lineage.forks()):
        chain = list(lineage.walk(branch))
        wanted = policy.wants(chain)
        # the version of U that leads here from the last state that stays: none, one, or not one
        since: bytes | None = None
        before: Mapping[str, str] = {}
        for i, entry in enumerate(chain):
            ids = entry.document.resulting
            state = {(kind, ids[kind]) for kind in STATE}
            leads, own = True, since
            if ids != before:
                own = canonical(entry.document.exact["v"]["U"]) if i > 0 else NO_WAY
                leads = i > 0 and since in (None, own) and _gives(entry, store, certified)
            before = ids
            if leads and i not in wanted:
                loose |= state
                since = own
            else:
                kept |= state
                there = all(store.has(*value) for value in state)
                since = None if there else own if leads else NO_WAY
                stuck |= {ids["model"]} if there and i not in wanted else set()
    return kept, loose - kept, len(stuck)


def _gives(entry: Entry, store: Store, certified: Certified) -> bool:
    """Whether U gives the state after a record again."""
    exact = entry.document.exact
    return store.has("credit", exact["G"]) and certified(exact["v"]["U"])
