"""One question, a calculator to use, one answer.

A turn with tool calls gets their results and goes on; a turn without is the final answer and is
scored as in `arithmetic`. A call that cannot be read or worked out gets an error text. The limits
are counts: `turns` turns, and `calls` calls, of which those beyond get an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from harness.environments import calculator
from harness.environments.arithmetic import check_format_reward, score
from harness.environments.turns import contradiction
from harness.forms import Action, Event, Stop
from harness.round import Seed


@dataclass(frozen=True)
class Desk:
    """What the environment knows: the question, the turns taken, the calls answered."""

    expression: str
    answer: str
    turn: int = 0
    calls: int = 0


@dataclass(frozen=True)
class ArithmeticTool:
    """The multi-turn world with a calculator.

    Degenerate: with `turns` 1 a call can never be followed by an answer.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    turns: int = 4
    calls: int = 4
    format_reward: float = 0.1

    def __post_init__(self) -> None:
        check_format_reward(self.format_reward)
        if self.turns < 1:
            raise ValueError(f"environment.turns is {self.turns}; an episode takes at least 1 turn")
        if self.calls < 0:
            raise ValueError(f"environment.calls is {self.calls}; it must be 0 or more")

    @property
    def tools(self) -> list[dict[str, Any]]:
        return [calculator.SCHEMA]

    def reset(self, problem: Mapping[str, Any], seed: Seed) -> tuple[Desk, list[dict[str, Any]]]:
        messages = [dict(message) for message in problem["messages"]]
        return Desk(problem["expression"], problem["answer"]), messages

    def step(self, state: Desk, action: Action) -> tuple[Desk, Event]:
        key = f"{state.expression} turn {state.turn} calls {state.calls}"
        after = replace(state, turn=state.turn + 1)
        if not action.calls:
            reward = score(action.text, state.answer, self.format_reward)
            return after, Event(messages=[], reward=reward, done=True, key=key)
        answers = []
        for call in action.calls:
            if after.calls >= self.calls:
                spent = {"name": call.name, "arguments": call.arguments}
                answers.append({**spent, "error": f"all {self.calls} calls are spent"})
            else:
                answers.append(calculator.answer(call))
                after = replace(after, calls=after.calls + 1)
        texts = [a["result"] if "result" in a else f"error: {a['error']}" for a in answers]
        out = after.turn >= self.turns
        return after, Event(
            messages=[{"role": "tool", "content": text} for text in texts],
            done=out,
            stop=Stop.TURN_BUDGET if out else None,
            key=key,
            calls=tuple(answers),
        )

    def admits(self, problem: Mapping[str, Any], turns: list[dict[str, Any]]) -> str | None:
        """Why no seed could have produced these turns; None where one could."""
        return contradiction(self, problem, Seed("0" * 32), turns)
