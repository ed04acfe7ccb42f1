"""Where a person says that a record is.

NAME            the head of a lineage          @12             round 12 of the newest lineage
NAME@12         a round of it                  3fa9c1          a prefix of an identity or a seal,
NAME@side@12    a round of one of its branches sha256:3fa9c1   of six hex digits or more
"""

from __future__ import annotations

import re

from harness.ledger.entry import MAIN, Entry, load
from harness.ledger.ledger import Ledger
from harness.ledger.lineage import Lineage


def lineage(ledger: Ledger, name: str | None) -> Lineage:
    """A lineage by its name, the newest without one."""
    if name:
        if (found := ledger.find(name)) is None:
            names = [line.name for line in ledger.lineages()][:10]
            raise ValueError(f"there is no lineage {name!r}; there are {names}")
        return found
    if not (lineages := ledger.lineages()):
        raise ValueError(f"the ledger at {ledger.uri!r} has no lineage yet; run a round first")
    return lineages[0]


def record(ledger: Ledger, text: str) -> tuple[Lineage, Entry]:
    """A record by its address, the head of the newest lineage without one.

    Raises ValueError where there is none, or more than one.
    """
    if "@" in text:
        name, *rest = text.split("@")
        numbers = [int(rest.pop())] if _number(rest[-1]) else []
        branch = rest.pop() if rest else MAIN
        if rest or _number(branch):
            raise ValueError(f"{text!r} is no address; give NAME, NAME@N or NAME@BRANCH@N")
        found = lineage(ledger, name)
        return found, found.at(numbers[0], branch) if numbers else found.head(branch)
    if re.fullmatch(r"(sha256:)?[0-9a-f]{6,64}", text) and ledger.find(text) is None:
        return _by_prefix(ledger, "sha256:" + text.removeprefix("sha256:"))
    found = lineage(ledger, text)
    return found, found.head()


def _number(text: str) -> bool:
    return re.fullmatch(r"-1|\d+", text) is not None


def _by_prefix(ledger: Ledger, prefix: str) -> tuple[Lineage, Entry]:
    lines = {line.run: line for line in ledger.lineages()}
    found: dict[str, tuple[Lineage, Entry]] = {}
    for digest in ("identity", "seal"):
        for run in ledger.search(f"params.\"ledger.{digest}\" LIKE '{prefix}%'"):
            own = run.info.run_id
            line = lines.get(run.data.params.get("ledger.lineage", own))
            if line is not None and (own == line.run or line.holds(run)):
                found[own] = (line, load(ledger.client, run))
    if not found:
        raise ValueError(f"no record begins with {prefix}; `log` lists the records")
    if len(found) > 1:
        places = sorted(f"{line.name}@{entry.branch}@{entry.n}" for line, entry in found.values())
        raise ValueError(f"{prefix} is the beginning of {len(found)} records: {', '.join(places)}")
    return next(iter(found.values()))
