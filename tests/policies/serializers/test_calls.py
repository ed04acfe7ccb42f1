import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.forms import Call
from harness.identity import canonical
from harness.policies.serializers.calls import parse_calls


def call(body):
    return f"<tool_call>{body}</tool_call>"


def test_calls_are_read_in_order():
    text = "First " + call('\n{"name": "f", "arguments": {"x": 1}}\n') + call('{"name": "g"')
    assert parse_calls(text) == (
        Call("f", {"x": 1}, '{"name": "f", "arguments": {"x": 1}}'),
        Call("", None, '{"name": "g"'),
    )


def test_text_without_calls_has_none():
    assert parse_calls("no calls </tool_call> here") == ()


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        ('{"name": "f", "parameters": {"x": "y"}}', "f", {"x": "y"}),
        ('{"name": "f", "arguments": "{\\"x\\": 1}"}', "f", {"x": 1}),
        ('{"name": "f", "arguments": {}}', "f", {}),
        ('{"name": "f"}', "f", None),
        ('{"name": "f", "arguments": [1]}', "f", None),
        ('{"name": 3, "arguments": {}}', "", None),
        ('{"name": "f", "arguments": {"x": NaN}}', "", None),
        ('{"name": "f", "arguments": {"x": 1e999}}', "", None),
        ('{"name": "f", "arguments": {"x": 9007199254740993}}', "", None),
        ('{"name": "f", "arguments": {"x": "\\ud800"}}', "", None),
        ("[" * 5000, "", None),
        ("9" * 5000, "", None),
        ("[]", "", None),
        ("", "", None),
    ],
)
def test_what_cannot_be_read_is_a_call_without_arguments(body, name, arguments):
    (read,) = parse_calls(call(body))
    assert (read.name, read.arguments, read.raw) == (name, arguments, body)


def test_an_unclosed_call_at_the_end_is_read():
    assert parse_calls('<tool_call>{"name": "f", "arguments": {}}') == (
        Call("f", {}, '{"name": "f", "arguments": {}}'),
    )


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]":,nametrgu0123e. <tool_call>/\\', max_size=80))
def test_every_call_can_enter_a_record(text):
    for read in parse_calls("<tool_call>" + text):
        canonical({"name": read.name, "arguments": read.arguments})
