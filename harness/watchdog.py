"""A limit of time on a call to code that is not ours.

Whether it fires depends on the clock: a round in which it does is open, and records where it did.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class TimeOut(Exception):
    """There was no answer in time."""


def within(seconds: float | None, call: Callable[..., T], *args: Any, **named: Any) -> T:
    """What the call returns or raises. Raises TimeOut where it takes longer; None: no limit.

    A thread cannot be stopped: a call that hangs is left behind, and ends with the process.
    """
    if seconds is None:
        return call(*args, **named)
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call(*args, **named))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TimeOut(f"there was no answer within {seconds:g} s")
    return found[0]


def check_seconds(name: str, seconds: float | None) -> None:
    """Raises ValueError for what is no limit."""
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ValueError(f"{name} is {seconds}; it is a number of seconds above 0, or null")
