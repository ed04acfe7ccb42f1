"""Text that others wrote, made safe to show: nothing hides, nothing reverses, nothing is markup.

Characters that a reader cannot see or that reorder a line (controls, format characters, lone
surrogates, separators, noncharacters) are spelt: U+0000 as ␀, U+202E as ⟨U+202E⟩. What is left
encodes as UTF-8 and is legal in HTML and XML.
"""

from __future__ import annotations

import math
import unicodedata
from html import escape
from typing import Any

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that are spelt."""
JOINERS = "\u200c\u200d"
"""Format characters that scripts and emoji need."""
IDENTIFIER = 12
"""Digits of a shortened identifier."""


def visible(text: str, keep: str = "") -> str:
    """The text with every hidden character spelt, but those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c in keep or c.isprintable() else _spelt(c) for c in text)


def _spelt(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    odd = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    hidden = unicodedata.category(character) in HIDDEN and character not in JOINERS
    return f"⟨U+{code:04X}⟩" if odd or hidden else character


def clipped(text: str, limit: int) -> str:
    """At most about `limit` characters, and how many are left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … {len(text) - limit:,} characters left out"


def markup(text: Any, limit: int = 400) -> str:
    """One line of HTML or XML text, or of a quoted attribute."""
    return escape(visible(clipped(str(text), limit)))


def block(text: Any, limit: int = 4000) -> str:
    """HTML text of several lines."""
    return escape(visible(clipped(str(text), limit), keep="\n\t"))


def token(text: str) -> str:
    """HTML text of a token: its line ends and tabs are seen, and act."""
    shown = escape(visible(clipped(text, 200), keep="\n\t"))
    return shown.replace("\n", "↵\n").replace("\t", "⇥\t") if shown else "∅"


def cell(text: Any, limit: int = 80) -> str:
    """One line of a markdown table, without any markup."""
    shown = visible(clipped(str(text), limit))
    for character in "\\`*_{}[]<>#|!&~$":
        shown = shown.replace(character, f"\\{character}")
    # a bare address would become a link
    return shown.replace("://", ":\u2060//").replace("www.", "www\u2060.")


def short(identifier: str) -> str:
    """The first digits of an identifier: enough for people, and for a verb."""
    return identifier.removeprefix("sha256:")[:IDENTIFIER]


def number(value: Any, sign: bool = False, digits: int = 4) -> str:
    """A count in full, or a measurement in some digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if abs(value) < 1e-12:
        return "0"
    if 1e4 <= abs(value) < 1e12:
        return f"{value:+,.0f}" if sign else f"{value:,.0f}"
    return f"{value:+.{digits}g}" if sign else f"{value:.{digits}g}"
