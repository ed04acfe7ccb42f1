"""Tokens as spans: shown ones grey, sampled ones coloured by their credit.

A level is 1 to 5 by |credit| / scale, with the sign's letter: p1 … p5, n1 … n5, and z for none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.pages.reading import Reading
from harness.pages.text import token

LEVELS = 5
CLASSES = [*(f"n{i}" for i in range(LEVELS, 0, -1)), "z", *(f"p{i}" for i in range(1, LEVELS + 1))]


class Spelled(dict[int, str]):
    """HTML text by token id; each id is decoded once."""

    def __init__(self, decode: Callable[[int], str]) -> None:
        super().__init__()
        self.decode = decode

    def __missing__(self, key: int) -> str:
        self[key] = token(self.decode(key))
        return self[key]


class Tokens:
    """Spans of the tokens of a record."""

    def __init__(self, reading: Reading, decode: Callable[[int], str]) -> None:
        Z, credit = reading.record.Z, np.nan_to_num(reading.credit_T)
        self.text = Spelled(decode)
        self.ids, self.action, self.logprobs = Z.token_ids_T, Z.is_action_T, Z.logprobs_T
        self.credit = reading.credit_T
        strength = np.ceil(np.minimum(np.abs(credit) / reading.scale, 1.0) * LEVELS)
        self.level = (np.sign(credit) * strength).astype(np.int64) + LEVELS

    def spans(self, start: int, end: int) -> str:
        """The tokens from start to end."""
        if not self.action[start:end].any():
            return "".join(
                [f"<i title={t}>{self.text[t]}</i>" for t in self.ids[start:end].tolist()]
            )
        rows = zip(
            self.ids[start:end].tolist(), self.action[start:end].tolist(),
            self.logprobs[start:end].tolist(), self.credit[start:end].tolist(),
            self.level[start:end].tolist(), strict=True,
        )  # fmt: skip
        text, classes = self.text, CLASSES
        return "".join([
            f'<b class={classes[level]} title="{t}: log p {logprob:.3f}, credit {credit:+.3f}">'
            f"{text[t]}</b>"
            if action else f"<i title={t}>{text[t]}</i>"
            for t, action, logprob, credit, level in rows
        ])  # fmt: skip

    @property
    def words(self) -> bool:
        """Whether tokens are words without their spaces: they are shown apart then."""
        return not any(text.startswith(" ") or text.endswith(" ") for text in self.text.values())

    def broken(self, start: int, end: int) -> bool:
        """Whether a token there holds a part of a character only."""
        return any("\ufffd" in self.text[t] for t in self.ids[start:end].tolist())
