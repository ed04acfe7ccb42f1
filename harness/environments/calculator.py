"""A calculator that a language model can call: bounded, exact, and never `eval`.

Numbers are fractions; + - * / // % ** and parentheses are what there is. Whatever cannot be worked
out is an error text, which is an observation like any other.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from harness.forms import Call

LONGEST = 200
"""Characters of an expression."""
LARGEST = 256
"""Bits of a numerator or a denominator."""
ALLOWED = re.compile(r"[0-9+\-*/%(). ]*")

SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Work out an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "Such as 3 * (4 + 5)."}},
            "required": ["expression"],
        },
    },
}

OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


class Uncomputable(Exception):
    """Why an expression has no value here: a text for the policy."""


def answer(call: Call) -> dict[str, Any]:
    """The call for the record: name, arguments, and its result or its error."""
    record = {"name": call.name, "arguments": call.arguments}
    if call.name != "calculator":
        return {**record, "error": f"there is no tool {call.name!r}; there is calculator"}
    expression = (call.arguments or {}).get("expression")
    if not isinstance(expression, str):
        return {**record, "error": 'the arguments must be {"expression": TEXT}'}
    try:
        return {**record, "result": show(evaluate(expression))}
    except Uncomputable as reason:
        return {**record, "error": str(reason)}


def evaluate(expression: str) -> Fraction:
    """The exact value. Raises Uncomputable."""
    if len(expression) > LONGEST:
        raise Uncomputable(f"the expression has more than {LONGEST} characters")
    # letters are out before Python's parser sees them
    if not ALLOWED.fullmatch(expression):
        raise Uncomputable("only numbers, + - * / // % ** and parentheses are known")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Uncomputable("this is not an expression") from None
    return _value(tree.body)


def show(value: Fraction) -> str:
    """An integer exactly, anything else to ten significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    try:
        return f"{float(value):.10g}"
    except OverflowError:
        return str(value.numerator // value.denominator)


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _bounded(Fraction(str(node.value)) if _finite(node.value) else None)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand)
        return value if isinstance(node.op, ast.UAdd) else -value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if type(node.op) in OPERATORS:
            try:
                return _bounded(Fraction(OPERATORS[type(node.op)](left, right)))
            except ZeroDivisionError:
                raise Uncomputable("division by zero") from None
    raise Uncomputable("only numbers, + - * / // % ** and parentheses are known")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise Uncomputable("an exponent must be an integer")
    if base == 0 and exponent < 0:
        raise Uncomputable("division by zero")
    # the size of the result is bounded before it is worked out
    if _bits(base) * abs(exponent.numerator) > 2 * LARGEST and abs(base) != 1 and base != 0:
        return _bounded(None)
    if abs(exponent.numerator) > 2 * LARGEST:
        exponent = Fraction(exponent.numerator % 2)
    return _bounded(Fraction(base**exponent.numerator))


def _bounded(value: Fraction | None) -> Fraction:
    if value is None or _bits(value) > LARGEST:
        raise Uncomputable("the numbers are too large")
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _finite(value: float) -> bool:
    return abs(value) < 2.0**LARGEST
