"""An environment's answer to an action; the one place that turns its exceptions into data."""

from __future__ import annotations

from typing import Any

from harness.forms import Action, Event, Stop, as_turn


def answer(environment: Any, state: Any, action: Action) -> tuple[Any, Event, dict[str, Any]]:
    """The state and the event after an action, and the turn for the record.

    An exception, or an answer that no record can hold, is an episode that a tool failure ended.
    """
    try:
        after, event = environment.step(state, action)
        return after, event, as_turn(action, event)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        failed = {"name": "environment", "arguments": {}, "error": text}
        event = Event([], done=True, stop=Stop.TOOL_FAILURE, calls=(failed,))
        return state, event, as_turn(action, event)
