import contextlib
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.environments.calculator import Uncomputable, answer, evaluate, show
from harness.forms import Call
from harness.identity import canonical


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3 + 4", "7"), ("2 * (3 - 5)", "-4"), ("7 / 2", "3.5"), ("7 // 2", "3"), ("-7 % 3", "2"),
        ("2 ** 10", "1024"), ("0.1 + 0.2", "0.3"), ("1 / 3", "0.3333333333"), ("2 ** -2", "0.25"),
        ("  5", "5"), ("(-1) ** 1000001", "-1"), ("0 ** 0", "1"), ("10 ** 60", "1" + "0" * 60),
    ],
)  # fmt: skip
def test_values(expression, value):
    assert show(evaluate(expression)) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("9**9**9", "the numbers are too large"),
        ("9**9**9**9**9", "the numbers are too large"),
        ("2 ** 0.5", "an exponent must be an integer"),
        ("1 / 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("5 % 0", "division by zero"),
        ("", "this is not an expression"),
        ("1 +", "this is not an expression"),
        ("(" * 99 + "1", "this is not an expression"),
        ("1, 2", "only numbers, + - * / // % ** and parentheses are known"),
        ("3(4)", "only numbers, + - * / // % ** and parentheses are known"),
        ("__import__('os')", "only numbers, + - * / // % ** and parentheses are known"),
        ("1e999", "only numbers, + - * / // % ** and parentheses are known"),
        ("1" * 200, "the numbers are too large"),
        ("1" * 201, "the expression has more than 200 characters"),
    ],
)
def test_what_cannot_be_worked_out_is_an_error_text(expression, reason):
    start = time.perf_counter()
    with pytest.raises(Uncomputable) as refusal:
        evaluate(expression)
    assert str(refusal.value) == reason
    assert time.perf_counter() - start < 1


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789+-*/%(). ", max_size=60))
def test_any_expression_has_a_value_or_a_reason(expression):
    with contextlib.suppress(Uncomputable):
        assert show(Fraction(evaluate(expression)))


def test_calls_become_records():
    assert answer(Call("calculator", {"expression": "3*4"}, "")) == {
        "name": "calculator", "arguments": {"expression": "3*4"}, "result": "12",
    }  # fmt: skip
    for call in (
        Call("search", {"q": "x"}, ""), Call("calculator", None, ""),
        Call("calculator", {"expression": 3}, ""), Call("calculator", {}, ""), Call("", None, "{"),
    ):  # fmt: skip
        record = answer(call)
        assert set(record) == {"name", "arguments", "error"}
        canonical(record)
