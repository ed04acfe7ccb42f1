"""Pages of a round for people: functions of its record, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from harness.round import Record

NONE: Mapping[str, str] = MappingProxyType({})
ADDRESS = re.compile(r"(https?://|#|\.{0,2}/)[\w\-./#?=&%+:,~]*", re.ASCII)


def of(
    record: Record, *, decode: Callable[[int], str], name: str, links: Mapping[str, str] = NONE
) -> dict[str, bytes]:
    """`trajectories.html`, `card.md`, `episodes.csv` and `credit.svg` of a round.

    decode: the text of one token. name: the lineage, as a verb takes it. links: addresses by label,
    each http(s), a path or a fragment; ValueError for any other.
    """
    from harness.pages.card import card
    from harness.pages.chart import chart
    from harness.pages.reading import read
    from harness.pages.table import table
    from harness.pages.trajectories import page

    for label, address in links.items():
        if not ADDRESS.fullmatch(address):
            raise ValueError(
                f"the link {label!r} goes to {address!r}; an address begins with http://, "
                "https://, / or #, and holds no spaces, quotes or brackets"
            )
    reading = read(record)
    picture = chart(reading)
    pages = {
        "trajectories.html": page(reading, decode, name, links, picture),
        "card.md": card(reading, name, links),
        "episodes.csv": table(reading),
        "credit.svg": picture,
    }
    return {path: text.encode() for path, text in pages.items()}
