"""Tool calls in a policy's text: <tool_call>{"name": …, "arguments": {…}}</tool_call>.

Whatever is written there becomes a call: one that cannot be read has `arguments` None, which is
data for the environment to answer. An unclosed call at the end is read as if it were closed.
"""

from __future__ import annotations

import json
import re
from typing import Any

from harness.forms import Call
from harness.identity import canonical

CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
DEEPEST = 32
"""Levels of nesting that arguments may have."""


def parse_calls(text: str) -> tuple[Call, ...]:
    """The calls of a text, in order."""
    return tuple(_call(match.group(1).strip()) for match in CALL.finditer(text))


def _call(raw: str) -> Call:
    document = _read(raw)
    if not isinstance(document, dict):
        return Call("", None, raw)
    name = document.get("name")
    arguments = document.get("arguments", document.get("parameters"))
    if isinstance(arguments, str):
        arguments = _read(arguments)
    good = isinstance(name, str) and isinstance(arguments, dict)
    return Call(name if isinstance(name, str) else "", arguments if good else None, raw)


def _read(raw: str) -> Any:
    """The JSON value, where it has one spelling that a record can hold; else None."""
    if _depth(raw) > DEEPEST:
        return None
    try:
        document = json.loads(raw)
        canonical(document)
    # not JSON, or a number or a lone surrogate without a canonical spelling
    except ValueError:
        return None
    return document


def _depth(raw: str) -> int:
    """At least the nesting of the document: brackets within strings count too."""
    depth = deepest = 0
    for character in raw:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    return deepest
