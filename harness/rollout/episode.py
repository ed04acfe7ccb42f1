"""An episode while it is rolled out: what has been shown, sampled and answered so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.forms import Stop


@dataclass
class Episode:
    """One row while it is rolled out."""

    problem: int
    key: int
    reflected: bool
    state: Any
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    action: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    sampled: int = 0
    turn_start: int = 0
    stop: Stop | None = None
    failure: str = ""
    """Why the environment could not begin."""

    def show(self, tokens: list[int]) -> None:
        """Tokens that the policy is shown: prompt and observations."""
        self.tokens += tokens
        self.action += [False] * len(tokens)
        self.logprobs += [0.0] * len(tokens)
        self.thresholds += [float("-inf")] * len(tokens)
        self.values += [0.0] * len(tokens)
        self.turn_start = len(self.tokens)

    def act(self, token: int, logprob: float, threshold: float, value: float) -> None:
        self.tokens.append(token)
        self.action.append(True)
        self.logprobs.append(logprob)
        self.thresholds.append(threshold)
        self.values.append(value)
        self.sampled += 1
        self.pending = [token]

    @property
    def turn_tokens(self) -> list[int]:
        return self.tokens[self.turn_start :]
