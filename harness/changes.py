"""What a lineage is run with from here on that its last round was not: shown, not refused.

A map may be exchanged between rounds: each record names its own maps. The first state, the seed law
and the root are of the lineage, and cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.ledger.record import Document

NAMES = {
    "T": "task", "upsilon": "environment", "S": "sampler", "R": "rollout", "F": "feedback",
    "C": "credit", "U": "update", "A": "accounting",
}  # fmt: skip
SOURCES = {"T": "task", "upsilon": "environment"}


def changes(
    last: Document, versions: Mapping[str, Mapping[str, str]], iota: str,
    fingerprints: Mapping[str, str],
) -> list[str]:  # fmt: skip
    """A sentence for every difference from the last record.

    versions: exact versions by map, with T and upsilon; iota: the id of the inference settings.
    """
    exact, sealed = last.exact, last.sealed
    before: dict[str, Any] = {**exact["v"], "T": exact["T"], "upsilon": exact["upsilon"]}
    since, found = f"from round {last.n + 1} on", []
    for key, name in NAMES.items():
        old, new = before[key], versions[key]
        if old["name"] != new["name"]:
            found.append(f"{since}, {name} is {new['name']}; it was {old['name']}")
        elif old["settings"] != new["settings"]:
            found.append(f"{since}, {name} ({new['name']}) has other settings")
        elif _changed(sealed, fingerprints, SOURCES.get(key, key)):
            found.append(f"{since}, {name} ({new['name']}) runs changed source or other libraries")
    if exact["nu"]["iota"] != iota:
        found.append(f"{since}, inference has other settings")
    return found


def _changed(sealed: Mapping[str, Any], now: Mapping[str, str], key: str) -> bool:
    before = sealed.get("fingerprints", {}).get(key)
    return before is not None and key in now and before != now[key]
