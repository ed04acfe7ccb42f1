"""One question, one answer: a number and nothing else.

    reward = 1              if the text is exactly the answer
             format_reward  if it is some other integer
             0              otherwise

Surrounding white space does not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.environments.turns import contradiction
from harness.forms import Action, Event
from harness.round import Seed

INTEGER = re.compile(r"-?[0-9]+")


def score(text: str, answer: str, format_reward: float) -> float:
    """The reward of a final answer."""
    text = text.strip()
    if text == answer:
        return 1.0
    return format_reward if INTEGER.fullmatch(text) else 0.0


@dataclass(frozen=True)
class Question:
    """What the environment knows."""

    expression: str
    answer: str


@dataclass(frozen=True)
class Arithmetic:
    """The single-turn world: it ends after one action.

    Degenerate: format_reward 0 leaves exactness alone.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    format_reward: float = 0.1

    def __post_init__(self) -> None:
        check_format_reward(self.format_reward)

    @property
    def tools(self) -> list[dict[str, Any]]:
        return []

    def reset(
        self, problem: Mapping[str, Any], seed: Seed
    ) -> tuple[Question, list[dict[str, Any]]]:
        messages = [dict(message) for message in problem["messages"]]
        return Question(problem["expression"], problem["answer"]), messages

    def step(self, state: Question, action: Action) -> tuple[Question, Event]:
        reward = score(action.text, state.answer, self.format_reward)
        return state, Event(messages=[], reward=reward, done=True, key=state.expression)

    def admits(self, problem: Mapping[str, Any], turns: list[dict[str, Any]]) -> str | None:
        """Why no seed could have produced these turns; None where one could."""
        return contradiction(self, problem, Seed("0" * 32), turns)


def check_format_reward(value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"environment.format_reward is {value}; it must be in [0, 1)")
