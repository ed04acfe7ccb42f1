"""Vaults with one lock or several, each with a code of one symbol.

    codes ~ Uniform(A^L)            A the first `codes` symbols of 0123456789abcdef, L = `locks`

so μ(x) = codes^(-L) for every x. The policy is told that there is a vault, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.round import Seed
from harness.tasks.uniform import below

SYMBOLS = "0123456789abcdef"


@dataclass(frozen=True)
class Vault:
    """The uniform law on codes.

    Degenerate: with `codes` 1 there is nothing to look for.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    codes: int = 8
    """Symbols that a code can be: 1 to 16."""
    locks: int = 1
    """Locks in a row."""

    def __post_init__(self) -> None:
        if not 1 <= self.codes <= len(SYMBOLS):
            raise ValueError(f"task.codes is {self.codes}; a vault has 1 to {len(SYMBOLS)} codes")
        if self.locks < 1:
            raise ValueError(f"task.locks is {self.locks}; a vault has at least 1 lock")

    @property
    def size(self) -> int:
        """Problems there are, all equally likely."""
        return self.codes**self.locks

    def nth(self, i: int) -> dict[str, Any]:
        """The problem whose code is i in base `codes`."""
        symbols = [SYMBOLS[i // self.codes**k % self.codes] for k in range(self.locks)]
        return {
            "messages": [{"role": "user", "content": "vault closed"}],
            "codes": symbols,
            "answer": " ".join(symbols),
        }

    def draw(self, seed: Seed) -> dict[str, Any]:
        return self.nth(below(seed, self.size))

    def support(self) -> Iterator[tuple[dict[str, Any], float]]:
        """Every problem with its probability."""
        return ((self.nth(i), 1 / self.size) for i in range(self.size))

    def probability(self, problem: dict[str, Any]) -> float:
        codes = problem.get("codes", [])
        if len(codes) != self.locks or any(c not in SYMBOLS[: self.codes] for c in codes):
            return 0.0
        index = sum(SYMBOLS.index(c) * self.codes**k for k, c in enumerate(codes))
        return 1 / self.size if problem == self.nth(index) else 0.0
