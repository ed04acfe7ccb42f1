"""Signals that ask a process to end, and are not to be lost.

A signal's exception is raised wherever the process is. A library that swallows every exception just
there would let it run on: so what was asked is noted, and heeded again before each map.
"""

from __future__ import annotations

ASKED: list[int] = []
"""The signals so far."""


def ask(number: int) -> None:
    """Note that a signal wants the process to end."""
    ASKED.append(number)


def heed() -> None:
    """Raise SystemExit, with the code of the first signal, if the process was asked to end."""
    if ASKED:
        raise SystemExit(128 + ASKED[0])
