"""Seeds from an explicit list: a replay of somebody's choice. It claims no law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.round import Seed, Seeds
from harness.seeds.independent import PARTS


@dataclass(frozen=True)
class Recorded:
    """ω_n is row n of `rows`, five strings of 32 hex digits (task, roll, feed, credit, update).

    Raises ValueError for a round beyond the list or a row that is not such.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    claims: ClassVar[tuple[str, ...]] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for n, row in enumerate(self.rows):
            good = len(row) == len(PARTS) and all(
                len(x) == 32 and set(x) <= set("0123456789abcdef") for x in row
            )
            if not good:
                raise ValueError(
                    f"seeds.law.rows[{n}] is {list(row)}; a row is five strings of 32 hex digits"
                )

    def draw(self, root: str, arm: str, n: int) -> Seeds:
        if not 0 <= n < len(self.rows):
            raise ValueError(f"round {n} has no recorded seeds; the list has {len(self.rows)} rows")
        return Seeds(*(Seed(x) for x in self.rows[n]))
