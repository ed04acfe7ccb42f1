from harness.pages.heading import heading
from harness.pages.reading import read

from .conftest import made


def test_a_heading_names_the_gate_that_was_not_passed():
    text = heading(read(made(decision="reject", text="kl")), "a", {}, "")
    assert "Not passed: kl." in text
    assert "✗ not passed" in text


def test_identifiers_are_shortened_and_whole_in_their_titles():
    text = heading(read(made()), "a", {}, "")
    assert f'<code title="sha256:{"a" * 64}">{"a" * 12}</code>' in text


def test_controls_are_hidden_until_a_script_runs():
    assert "<span class=controls hidden>" in heading(read(made()), "a", {}, "")
