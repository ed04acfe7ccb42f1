"""An episode of the page: turns of sampled tokens, tool calls, and what was shown in return."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.forms import Stop
from harness.pages.reading import STOPS, Reading
from harness.pages.text import block, markup, number
from harness.pages.tokens import Tokens


class Episodes:
    """Articles of episodes; of each at most `most` tokens, those in the middle left out."""

    def __init__(self, reading: Reading, decode: Callable[[int], str], most: int) -> None:
        Z = reading.record.Z
        self.reading, self.most = reading, max(most, 2)
        self.tokens = Tokens(reading, decode)
        self.told = Z.episodes
        self.offsets: list[int] = Z.episode_offsets.tolist()
        self.starts: list[int] = Z.arrays["turn_start"].tolist()
        self.ends: list[int] = Z.arrays["turn_end"].tolist()
        self.rewards: list[float] = Z.arrays["turn_rewards"].tolist()
        episodes_B = np.arange(len(self.offsets))
        self.turns: list[int] = np.searchsorted(Z.arrays["turn_episode"], episodes_B).tolist()

    def begins(self, b: int) -> int:
        """Where the first action of an episode begins; its end without one."""
        k = self.turns[b]
        return self.starts[k] if k < self.turns[b + 1] else self.offsets[b + 1]

    def attempt(self, b: int, mean: float, own_prompt: bool) -> str:
        """One episode: its numbers, then its turns. mean: of its problem's rewards."""
        reading, g = self.reading, b % self.reading.attempts
        reward, stop = float(reading.rewards_B[b]), reading.stop(b)
        scored = "unscored" if np.isnan(reward) else f"reward {number(reward)}"
        above = np.nan_to_num(reward - mean)
        prompt = self.span(self.offsets[b], self.begins(b)) if own_prompt else ""
        means = ""
        if reading.sampled_B[b]:
            means = (
                f"<p>mean log p {number(reading.logprob_B[b], digits=3)}, "
                f"mean credit {number(reading.advantage_B[b], sign=True, digits=3)}</p>"
            )
        return (
            f"<article data-g={g} data-r={-1e308 if np.isnan(reward) else reward!r} "
            f"data-d={float(above)!r} data-l={reading.lengths_B[b]} data-s={int(stop)}>"
            f"<h3><span>attempt {g}</span><span>{scored}</span></h3>"
            f"<p>{'' if stop is Stop.TERMINATED else '⚑ '}{STOPS[stop]} · <span title=sampled>"
            f"{reading.sampled_B[b]}</span> of {reading.lengths_B[b]} tokens</p>{means}"
            f"<div class=tokens>{prompt}</div><ol class=turns>{self._turns(b)}</ol></article>"
        )

    def _turns(self, b: int) -> str:
        told = self.told[b]["turns"]
        first, last, end = self.turns[b], self.turns[b + 1], self.offsets[b + 1]
        hole = self._hole(self.begins(b), end)
        parts = []
        for k in range(first, last):
            until = self.starts[k + 1] if k + 1 < last else end
            # a turn that lies in the hole is left out with its calls
            if not (hole[0] < self.starts[k] and until <= hole[1]):
                turn = told[k - first] if k - first < len(told) else {}
                parts.append(self._turn(k, k - first, until, turn, hole))
        return "".join(parts)

    def _turn(
        self, k: int, index: int, until: int, turn: Mapping[str, Any], hole: tuple[int, int]
    ) -> str:
        event, start, end = turn.get("event", {}), self.starts[k], self.ends[k]
        earned = ""
        if self.rewards[k]:
            lost = " lost" if self.rewards[k] < 0 else ""
            earned = f'<em class="earned{lost}">{number(self.rewards[k], sign=True)}</em>'
        calls = "".join([call(c) for c in event.get("calls", ())])
        seen = f"<span class=tokens>{self.span(end, until, hole)}</span>" if end < until else ""
        return (
            f'<li><u title="{markup(event.get("key", ""))}">{index + 1}</u>'
            f"<span class=tokens>{self.span(start, end, hole)}</span>{earned}"
            f"{self._together(start, end, turn, hole)}{calls}{seen}"
        )

    def _together(
        self, start: int, end: int, turn: Mapping[str, Any], hole: tuple[int, int]
    ) -> str:
        """The text of an action whose tokens hold parts of characters."""
        if (start < hole[1] and hole[0] < end) or not self.tokens.broken(start, end):
            return ""
        text = markup(turn.get("action", {}).get("text", ""))
        return f"<span class=read>read together: {text}</span>"

    def span(self, start: int, end: int, hole: tuple[int, int] | None = None) -> str:
        """Tokens from start to end, without those in the hole."""
        low, high = hole or self._hole(start, end)
        if end <= low or high <= start or low == high:
            return self.tokens.spans(start, end)
        before = self.tokens.spans(start, low) if start < low else ""
        after = self.tokens.spans(high, end) if high < end else ""
        gone = f"<s> … {high - low:,} tokens left out … </s>" if start <= low < end else ""
        return before + gone + after

    def _hole(self, start: int, end: int) -> tuple[int, int]:
        """The middle that is left out of these tokens; empty where they fit."""
        if end - start <= self.most:
            return end, end
        return start + self.most // 2, end - (self.most - self.most // 2)


def call(told: Mapping[str, Any]) -> str:
    """A tool call: its name, its arguments, and what came of it."""
    arguments = told.get("arguments")
    shown = "(unreadable)" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    failed = "error" in told
    came = told["error"] if failed else told.get("result", "")
    came = came if isinstance(came, str) else json.dumps(came, ensure_ascii=False)
    mark = "✗ " if failed else ""
    name = markup(told.get("name") or "?", 100)
    return (
        f'<span class="call{" failed" if failed else ""}">{name} {markup(shown)} → '
        f"{mark}{block(came, 1000)}</span>"
    )
