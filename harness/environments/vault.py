"""A vault that opens with a code which the policy must look up first.

One word a turn. `look` shows the code of the lock in front (`code 3`), a symbol tries it, and any
other word does nothing (`nothing`). The right symbol opens the lock, a wrong one ends the episode.
With L locks the rewards of one lock are

    look/L      for the first look at it
    open/L      for opening it after a look,  lucky/L without one

so a policy that looks and then opens earns look + open = 1, guessing with K codes earns lucky/K a
lock, and looking alone earns `look`: the partial credit by which a random policy finds the rest.
A chat model may call the tools `look()` and `open(code)` instead of writing the words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from harness.environments.turns import contradiction
from harness.forms import Action, Event, Stop
from harness.round import Seed

SYMBOLS = "0123456789abcdef"


@dataclass(frozen=True)
class Room:
    """What the environment knows: the locks, and how far the policy has come."""

    codes: tuple[str, ...]
    lock: int = 0
    looked: bool = False
    turn: int = 0


@dataclass(frozen=True)
class Vault:
    """A deterministic environment: given the problem, a history has one continuation.

    Degenerate: `look` 0 leaves a random policy with nothing to climb but luck.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    turns: int = 4
    """Turns an episode may take."""
    look: float = 0.2
    open: float = 0.8
    lucky: float = 0.2

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise ValueError(f"environment.turns is {self.turns}; an episode takes at least 1 turn")
        if min(self.look, self.open, self.lucky) < 0 or self.look + self.open > 1 + 1e-12:
            raise ValueError(
                f"environment.look {self.look} and open {self.open} must be at least 0 and sum to "
                "at most 1"
            )
        if self.lucky > self.open:
            raise ValueError(
                f"environment.lucky is {self.lucky}; opening by luck earns at most open {self.open}"
            )

    @property
    def tools(self) -> list[dict[str, Any]]:
        code = {"type": "string", "description": "One symbol, as the vault showed it."}
        return [
            _schema("look", "Show the code of the lock in front.", {}),
            _schema("open", "Try a code on the lock in front.", {"code": code}),
        ]

    def reset(self, problem: Mapping[str, Any], seed: Seed) -> tuple[Room, list[dict[str, Any]]]:
        return Room(tuple(problem["codes"])), [dict(m) for m in problem["messages"]]

    def step(self, state: Room, action: Action) -> tuple[Room, Event]:
        word = _word(action)
        after, text, reward, done = self._outcome(replace(state, turn=state.turn + 1), word)
        out = not done and after.turn >= self.turns
        name = "look" if word == "look" else "open"
        called = word == "look" or (len(word) == 1 and word in SYMBOLS)
        call = {"name": name, "arguments": {} if name == "look" else {"code": word}, "result": text}
        role = "tool" if action.calls else "user"
        return after, Event(
            messages=[{"role": role, "content": text}],
            reward=reward,
            done=done or out,
            stop=Stop.TURN_BUDGET if out else None,
            key=self._key(state),
            calls=(call,) if called else (),
        )

    def admits(self, problem: Mapping[str, Any], turns: list[dict[str, Any]]) -> str | None:
        """Why no seed could have produced these turns; None where one could."""
        return contradiction(self, problem, Seed("0" * 32), turns)

    def _outcome(self, room: Room, word: str) -> tuple[Room, str, float, bool]:
        locks, code = len(room.codes), room.codes[room.lock]
        if word == "look":
            reward = 0.0 if room.looked else self.look / locks
            return replace(room, looked=True), f"code {code}", reward, False
        if len(word) != 1 or word not in SYMBOLS:
            return room, "nothing", 0.0, False
        if word != code:
            return room, "wrong", 0.0, True
        reward = (self.open if room.looked else self.lucky) / locks
        if room.lock + 1 == locks:
            return room, "opened", reward, True
        return replace(room, lock=room.lock + 1, looked=False), "opened", reward, False

    def _key(self, room: Room) -> str:
        seen = "seen" if room.looked else "unseen"
        return f"codes {' '.join(room.codes)} lock {room.lock} {seen} turn {room.turn}"


def _word(action: Action) -> str:
    """The command: of the first tool call where there is one, else of the text."""
    if not action.calls:
        return action.text.strip()
    call = action.calls[0]
    if call.name == "look":
        return "look"
    if call.name == "open" and call.arguments is not None:
        return str(call.arguments.get("code", "")).strip()
    return ""


def _schema(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": sorted(properties)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": json.loads(json.dumps(function))}
