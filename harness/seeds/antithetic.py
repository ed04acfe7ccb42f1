"""Antithetic pairs inside a group: attempts 2i and 2i+1 of a problem draw u and 1 - u.

The five parts of ω_n are those of the product law. What the law declares beyond it is how R unfolds
ω_n^roll: episode (p, g) samples with the key of (p, ⌊g/2⌋), reflected where g is odd. Each episode
keeps its own law, pairs are negatively dependent, and a group is no longer an independent sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.seeds.independent import Independent


@dataclass(frozen=True)
class Antithetic(Independent):
    """The product law over rounds and parts, with reflected pairs inside each group.

    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    claims: ClassVar[tuple[str, ...]] = (
        "uniform marginals",
        "parts independent within a round",
        "rounds independent",
        "arms independent",
        "episode marginals only: attempts 2i and 2i+1 of a problem are reflected",
    )
    pairs: bool = True
    """Read by R: reflect every odd attempt."""
