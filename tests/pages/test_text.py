import pytest

from harness.pages.text import block, cell, clipped, markup, number, short, token, visible

from .conftest import HOSTILE


def test_hidden_characters_are_spelt():
    assert visible("a\x00b\x7fc") == "a␀b␡c"
    assert visible("a\u202eb\ud800") == "a⟨U+202E⟩b⟨U+D800⟩"
    assert visible("a\nb", keep="\n") == "a\nb"
    assert visible("naïve 数 \u00a0👩\u200d🚀 שלום") == "naïve 数 \u00a0👩\u200d🚀 שלום"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_wrote_is_text_and_encodes(text):
    for shown in (markup(text), block(text), token(text)):
        shown.encode()
        assert not set("<>\"'") & set(shown)
    assert "\n" not in markup(text + "\n")


def test_a_token_shows_its_ends_of_lines():
    assert token("a\n\t") == "a↵\n⇥\t"
    assert token("") == "∅"


def test_long_text_says_what_is_left_out():
    assert clipped("x" * 2000, 10) == "xxxxxxxxxx … 1,990 characters left out"


def test_a_cell_holds_no_markdown():
    assert cell("a|b`c`<d>[e](f)") == "a\\|b\\`c\\`\\<d\\>\\[e\\](f)"
    assert "\n" not in cell("a\nb")


def test_numbers_and_identifiers_are_short():
    assert [number(x) for x in (1234567, 0.123456, float("nan"), "inf", 0.0, 12345.6)] == [
        "1,234,567", "0.1235", "NaN", "inf", "0", "12,346",
    ]  # fmt: skip
    assert number(0.5, sign=True) == "+0.5"
    assert short("sha256:" + "ab" * 32) == "abababababab"
