"""What an environment says first, and to an action: here its exceptions become data."""

from __future__ import annotations

from typing import Any

from harness.forms import Action, Event, Stop, as_turn
from harness.round import Seed
from harness.watchdog import TimeOut, within


def opening(
    environment: Any, problem: Any, seed: Seed, seconds: float | None = None
) -> tuple[Any, list[dict[str, Any]], str, Stop | None]:
    """The state and the messages that an episode begins with; what failed, or "", and the stop."""
    try:
        return *within(seconds, environment.reset, problem, seed), "", None
    except Exception as error:
        return None, [], described(error), reason(error)


def answer(
    environment: Any, state: Any, action: Action, seconds: float | None = None
) -> tuple[Any, Event, dict[str, Any]]:
    """The state and the event after an action, and the turn for the record.

    An exception, or an answer that no record can hold, is an episode that a tool failure ended; no
    answer within so many seconds, one that the watchdog ended.
    """
    try:
        after, event = within(seconds, environment.step, state, action)
        return after, event, as_turn(action, event)
    except Exception as error:
        failed = {"name": "environment", "arguments": {}, "error": described(error)}
        event = Event([], done=True, stop=reason(error), calls=(failed,))
        return state, event, as_turn(action, event)


def reason(error: Exception) -> Stop:
    """The stop that an exception is."""
    return Stop.TIMEOUT if isinstance(error, TimeOut) else Stop.TOOL_FAILURE


def described(error: Exception) -> str:
    """An exception as text that a record can hold."""
    return f"{type(error).__name__}: {error}".encode(errors="replace").decode()
