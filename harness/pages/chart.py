"""`credit.svg`: rewards by problem, and how credit is distributed over sampled tokens.

Presentation attributes only, no styles, scripts or identifiers: a page can hold it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from harness.pages.reading import Reading
from harness.pages.text import number

BLUE, ORANGE, GREY, INK = "#2f7fd0", "#e07b18", "#8a929c", "#30363d"
WIDTH, HEIGHT = 600, 220
TOP, BOTTOM = 34, 176
LEFT, MIDDLE, RIGHT_FROM, RIGHT = 46, 352, 412, 590
BINS = 21
DOTS = 1000
"""Dots drawn, at most; beyond, a problem is its range and mean."""
PROBLEMS = 512
"""Problems drawn, at most."""


def chart(reading: Reading) -> str:
    """The picture, as one svg element."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="11" fill="{INK}" '
        'role="img" aria-label="rewards by problem, and credit of sampled tokens">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_rewards(reading),
        *_credit(reading),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers from low to high."""
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= about + 0.5)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{text}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
    )


def _rewards(reading: Reading) -> list[str]:
    rewards_PG = reading.rewards_B.reshape(-1, reading.attempts)
    problems, scored = len(rewards_PG), rewards_PG[np.isfinite(rewards_PG)]
    parts = [_text(LEFT, 16, "reward of each attempt, by problem", "start", ' font-weight="600"')]
    if not len(scored):
        return [*parts, _text((LEFT + MIDDLE) / 2, 100, "no episode was scored")]
    low, high = min(0.0, float(scored.min())), float(scored.max())
    high = high if high > low else low + 1.0

    def at(reward: float) -> float:
        return BOTTOM - 9 - (reward - low) / (high - low) * (BOTTOM - TOP - 16)

    step = (MIDDLE - LEFT) / problems
    distinct = problems + int(np.count_nonzero(np.diff(np.sort(rewards_PG, axis=1), axis=1)))
    for value in ticks(low, high):
        parts.append(_line(LEFT, at(value), MIDDLE, at(value), "#e3e6ea"))
        parts.append(_text(LEFT - 6, at(value) + 4, number(value), "end"))
    every = math.ceil(problems / 16)
    for p in range(0, problems, math.ceil(problems / PROBLEMS)):
        x = LEFT + (p + 0.5) * step
        row = rewards_PG[p][np.isfinite(rewards_PG[p])]
        if len(row):
            parts += _problem(row, x, step, at, distinct <= DOTS)
    for p in range(0, problems, every):
        parts.append(_text(LEFT + (p + 0.5) * step, BOTTOM + 18, str(p)))
    parts.append(_text((LEFT + MIDDLE) / 2, BOTTOM + 36, "problem (line: mean of its attempts)"))
    return parts


def _problem(
    row: np.ndarray, x: float, step: float, at: Callable[[float], float], dots: bool
) -> list[str]:
    """Dots of a problem's attempts, equal ones as one of larger area, and their mean."""
    mean, half = float(row.mean()), min(step * 0.4, 14.0)
    parts = []
    values, counts = np.unique(row, return_counts=True)
    if not dots:
        parts.append(_line(x, at(float(row.min())), x, at(float(row.max())), "#c3c9d0", 2))
        values = values[:0]
    largest = max(min(step * 0.45, 9.0), 1.5)
    for value, count in zip(values.tolist(), counts.tolist(), strict=False):
        colour = GREY if len(values) == 1 else BLUE if value > mean else ORANGE
        radius = max(largest * math.sqrt(count / len(row)), 1.5)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{at(value):.1f}" r="{radius:.1f}" fill="{colour}" '
            f'fill-opacity="0.8"><title>{count} of {len(row)} at {number(value)}</title></circle>'
        )
    return [*parts, _line(x - half, at(mean), x + half, at(mean), INK, 1.5)]


def _credit(reading: Reading) -> list[str]:
    action_T = reading.record.Z.is_action_T & np.isfinite(reading.credit_T)
    credit = reading.credit_T[action_T]
    centre = (RIGHT_FROM + RIGHT) / 2
    heading = f"credit of {number(len(credit))} sampled tokens"
    parts = [_text(RIGHT_FROM, 16, heading, "start", ' font-weight="600"')]
    if not len(credit):
        return [*parts, _text(centre, 100, "nothing was sampled")]
    size = float(np.abs(credit).max()) or 1.0
    place = np.round((credit / size + 1) / 2 * (BINS - 1)).astype(int)
    counts = np.bincount(place, minlength=BINS)
    # what is exactly without credit stands apart from what has a little of it
    none = int((credit == 0).sum())
    step, tallest = (RIGHT - RIGHT_FROM) / BINS, int(counts.max())
    for share in (0.5, 1.0):
        y = BOTTOM - share * (BOTTOM - TOP)
        parts.append(_line(RIGHT_FROM, y, RIGHT, y, "#e3e6ea"))
        parts.append(_text(RIGHT_FROM - 4, y + 4, f"{share * tallest / len(credit):.0%}", "end"))
    for i, count in enumerate(counts.tolist()):
        tall = count / tallest * (BOTTOM - TOP)
        middle = i == BINS // 2
        colour = GREY if middle else ORANGE if i < BINS // 2 else BLUE
        if count:
            parts.append(
                f'<rect x="{RIGHT_FROM + i * step + 0.5:.1f}" y="{BOTTOM - tall:.1f}" '
                f'width="{step - 1:.1f}" height="{tall:.1f}" fill="{colour}">'
                f"<title>{number(count)} {'token' if count == 1 else 'tokens'}</title></rect>"
            )
    parts.append(_line(RIGHT_FROM, BOTTOM, RIGHT, BOTTOM, INK))
    ends = ((-size, RIGHT_FROM, "start"), (0.0, centre, "middle"), (size, RIGHT, "end"))
    parts += [_text(x, BOTTOM + 18, number(v, sign=v != 0), anchor) for v, x, anchor in ends]
    return [*parts, _text(centre, BOTTOM + 36, f"credit ({none / len(credit):.0%} have none)")]
