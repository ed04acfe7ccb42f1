"""What an environment says first, and to an action: here its exceptions become data."""

from __future__ import annotations

from typing import Any

from harness.forms import Action, Event, Stop, as_turn
from harness.round import Seed


def opening(environment: Any, problem: Any, seed: Seed) -> tuple[Any, list[dict[str, Any]], str]:
    """The state and the messages that an episode begins with; and what failed, or ""."""
    try:
        return *environment.reset(problem, seed), ""
    except Exception as error:
        return None, [], described(error)


def answer(environment: Any, state: Any, action: Action) -> tuple[Any, Event, dict[str, Any]]:
    """The state and the event after an action, and the turn for the record.

    An exception, or an answer that no record can hold, is an episode that a tool failure ended.
    """
    try:
        after, event = environment.step(state, action)
        return after, event, as_turn(action, event)
    except Exception as error:
        failed = {"name": "environment", "arguments": {}, "error": described(error)}
        event = Event([], done=True, stop=Stop.TOOL_FAILURE, calls=(failed,))
        return state, event, as_turn(action, event)


def described(error: Exception) -> str:
    """An exception as text that a record can hold."""
    return f"{type(error).__name__}: {error}".encode(errors="replace").decode()
