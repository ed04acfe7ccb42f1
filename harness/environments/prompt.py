"""One prompt, one answer, no reward of its own: scoring is left to the feedback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.environments.turns import contradiction
from harness.forms import Action, Event
from harness.round import Seed


@dataclass(frozen=True)
class Prompt:
    """The single-turn world of any problem with messages: it ends after one action, with reward 0.

    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"

    @property
    def tools(self) -> list[dict[str, Any]]:
        return []

    def reset(self, problem: Mapping[str, Any], seed: Seed) -> tuple[None, list[dict[str, Any]]]:
        return None, [dict(message) for message in problem["messages"]]

    def step(self, state: None, action: Action) -> tuple[None, Event]:
        return None, Event(messages=[], done=True)

    def admits(self, problem: Mapping[str, Any], turns: list[dict[str, Any]]) -> str | None:
        """Why no seed could have produced these turns; None where one could."""
        return contradiction(self, problem, Seed("0" * 32), turns)
