"""`trajectories.html`: what was sampled, with its credit, in one file without any other.

Text of models, environments and people is escaped into text nodes and quoted attributes, nothing
else, and the page's policy forbids every script and style but its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from harness.pages.choice import choose
from harness.pages.episode import Episodes
from harness.pages.heading import heading
from harness.pages.reading import Reading
from harness.pages.style import POLICY, SCRIPT, STYLE
from harness.pages.text import block, markup, number

EPISODES = 64
"""Episodes that are shown, at most."""
TOKENS = 32_000
"""Tokens of them, at most: longer episodes lose their middles."""
BYTES = 4_000_000
"""Size of the page, at most."""
FRAME = 20_000
"""Bytes of it that are kept for its style, script and frame."""
WIDE = 60
"""Tokens of an attempt from which it gets a wide column."""


def page(
    reading: Reading, decode: Callable[[int], str], name: str, links: Mapping[str, str],
    picture: str,
) -> str:  # fmt: skip
    """The page. picture: an svg element for its head."""
    rows = choose(reading.rewards_B, reading.attempts, EPISODES) if len(reading.rewards_B) else []
    head = heading(reading, name, links, picture)
    room = BYTES - len(head.encode()) - FRAME
    most = TOKENS // max(sum(map(len, rows)), 1)
    sections = Sections(Episodes(reading, decode, most), room)
    body = "".join([sections.problem(row) for row in rows])
    words = " class=words" if sections.episodes.tokens.words else ""
    return (
        '<!doctype html><html lang=en><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{markup(name, 80)}, round {reading.record.n}</title><style>{STYLE}</style></head>"
        f"<body>{head}<main{words}><p class=told>{sections.told()}</p>{body}</main>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


class Sections:
    """Problems with their attempts, until there is no room (in bytes)."""

    def __init__(self, episodes: Episodes, room: int) -> None:
        self.episodes, self.room = episodes, room
        self.reading = episodes.reading
        self.shown = 0
        self.full = False

    def told(self) -> str:
        """How many episodes are shown, and by which rule."""
        count = len(self.reading.rewards_B)
        if self.shown == count:
            return f"All {count} episodes are here."
        full = f", until the page has {BYTES // 10**6} MB" if self.full else ""
        return (
            f"{self.shown} of {number(count)} episodes are here, {number(count - self.shown)} are "
            "left out: problems are spread evenly over their mean rewards, and attempts at each "
            "over their rewards, the worst, the best and the first among them"
            f"{full}."
        )

    def problem(self, row: list[int]) -> str:
        """One problem, and those of its attempts that fit."""
        if self.full:
            return ""
        p, episodes, ids = row[0] // self.reading.attempts, self.episodes, self.episodes.tokens.ids
        begins, offsets = [episodes.begins(b) for b in row], episodes.offsets
        prompts = {ids[offsets[b] : t].tobytes() for b, t in zip(row, begins, strict=True)}
        shared = len(prompts) == 1
        longest = max(offsets[b + 1] - t for b, t in zip(row, begins, strict=True))
        wide = " wide" if longest > WIDE or not shared else ""
        top = self._summary(p) + self._given(p, (offsets[row[0]], begins[0]) if shared else None)
        start = f'<details open class=problem>{top}<div class="attempts{wide}">'
        self.room -= len(start.encode())
        parts, mean = [], self._mean(p)
        for b in row:
            text = episodes.attempt(b, mean, own_prompt=not shared)
            size = len(text.encode())
            self.full = size > self.room
            if self.full:
                break
            self.room -= size
            parts.append(text)
        self.shown += len(parts)
        return f"{start}{''.join(parts)}</div></details>" if parts else ""

    def _row(self, p: int) -> list[float]:
        G = self.reading.attempts
        row: list[float] = self.reading.rewards_B[p * G : (p + 1) * G].tolist()
        return [reward for reward in row if not math.isnan(reward)]

    def _mean(self, p: int) -> float:
        row = self._row(p)
        return math.fsum(row) / len(row) if row else math.nan

    def _summary(self, p: int) -> str:
        row, problem = self._row(p), self.reading.record.X.problems[p]
        rewards = "unscored"
        if row:
            low, high = number(min(row)), number(max(row))
            ends = " each" if low == high else f", from {low} to {high}"
            rewards = f"reward {number(self._mean(p))}{ends}"
        return (
            f"<summary><h2>Problem {p}</h2><span class=asked><bdi>{markup(asked(problem), 200)}"
            f"</bdi></span><span>{rewards}</span></summary>"
        )

    def _given(self, p: int, prompt: tuple[int, int] | None) -> str:
        """What the policy was shown first, and what only the environment knows."""
        text = json.dumps(self.reading.record.X.problems[p], ensure_ascii=False, indent=1)
        known = (
            "<details class=more><summary>the problem in full</summary>"
            f"<pre>{block(text)}</pre></details>"
        )
        if prompt is None:
            return f"<div class=given>{known}</div>"
        start, end = prompt
        tokens, more = f"<div class=tokens>{self.episodes.span(start, end)}</div>", ""
        if end - start > WIDE:
            title = f"the prompt of all attempts, {number(end - start)} tokens"
            more = f"<details class=more><summary>{title}</summary>{tokens}</details>"
            tokens = ""
        return f"<div class=given>{tokens}<div class=folds>{more}{known}</div></div>"


def asked(problem: Any) -> str:
    """What a problem asks, on one line."""
    if isinstance(problem, Mapping):
        messages = problem.get("messages")
        last = messages[-1] if isinstance(messages, list) and messages else None
        text = problem.get("text", last.get("content") if isinstance(last, Mapping) else None)
        if isinstance(text, str):
            return " ".join(text.split())
    return json.dumps(problem, ensure_ascii=False)
