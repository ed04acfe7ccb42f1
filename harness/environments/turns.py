"""Recorded turns, and driving an environment again with their actions.

A turn is the plain JSON of `harness.forms.as_turn`. The environment's randomness is that of its
seed, so the same seed and the same actions must give the same events; for an environment without
randomness any seed will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.forms import Action, Call, Event, Stop, as_turn
from harness.identity import canonical
from harness.round import Seed


def as_action(turn: Mapping[str, Any]) -> Action:
    """The action of a recorded turn."""
    action = turn["action"]
    calls = (Call(c["name"], c["arguments"], c["raw"]) for c in action.get("calls", ()))
    return Action(action["text"], tuple(calls))


def drive(
    environment: Any, problem: Mapping[str, Any], seed: Seed, actions: Sequence[Action]
) -> Iterator[tuple[Action, Event]]:
    """The events that these actions meet, until the episode ends or they are used up."""
    state, _ = environment.reset(problem, seed)
    for action in actions:
        state, event = environment.step(state, action)
        yield action, event
        if event.done:
            return


def contradiction(
    environment: Any, problem: Mapping[str, Any], seed: Seed, turns: Sequence[Mapping[str, Any]]
) -> str | None:
    """The first difference between recorded turns and the environment driven again; None: none."""
    driven = list(drive(environment, problem, seed, [as_action(turn) for turn in turns]))
    for n, (turn, (action, event)) in enumerate(zip(turns, driven, strict=False)):
        again = as_turn(action, event)["event"]
        for name, value in turn["event"].items():
            if canonical(value) != canonical(again.get(name)):
                return (
                    f"turn {n} has {name} {value!r}, but the environment gives {again.get(name)!r}"
                )
    if len(driven) < len(turns):
        return f"the episode ends after turn {len(driven) - 1}, but {len(turns)} turns are recorded"
    return None


def trajectories(
    environment: Any, problem: Mapping[str, Any], seed: Seed, texts: Sequence[str], *, limit: int
) -> Iterator[list[dict[str, Any]]]:
    """Every stopped trajectory whose actions are among `texts`, each as its turns, in their order.

    Raises ValueError where more than `limit` would be yielded: it is for small settings.
    """
    start, _ = environment.reset(problem, seed)
    stack: list[tuple[Any, list[dict[str, Any]]]] = [(start, [])]
    count = 0
    while stack:
        state, turns = stack.pop()
        ends = []
        for text in texts:
            after, event = environment.step(state, Action(text))
            ends.append((after, event.done, [*turns, as_turn(Action(text), event)]))
        for _, _, path in (end for end in ends if end[1]):
            count += 1
            if count > limit:
                raise ValueError(f"there are more than {limit} trajectories; enumerate fewer turns")
            yield path
        stack.extend((after, path) for after, done, path in reversed(ends) if not done)


def stop_of(turn: Mapping[str, Any]) -> Stop | None:
    """Why the episode ended at this turn; None where it goes on."""
    event = turn["event"]
    if not event["done"]:
        return None
    return Stop[event["stop"]] if event["stop"] else Stop.TERMINATED
