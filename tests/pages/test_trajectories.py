"""The page, parsed as a browser would: what others wrote is never an element or an attribute."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from harness.forms import Trajectories
from harness.pages import of
from harness.pages.trajectories import BYTES, asked

from .conftest import HOSTILE, made

ATTRIBUTES = {
    "class", "title", "content", "charset", "http-equiv", "name", "lang", "hidden", "value", "open",
    "data-g", "data-r", "data-d", "data-l", "data-s", "href", "rel", "target",
    # of the picture
    "xmlns", "viewbox", "width", "height", "font-family", "font-size", "font-weight", "fill",
    "fill-opacity", "role", "aria-label", "x", "y", "x1", "x2", "y1", "y2", "stroke",
    "stroke-width", "text-anchor", "cx", "cy", "r",
}  # fmt: skip


class Page(HTMLParser):
    def __init__(self, data):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], set(), []
        self.feed(data.decode())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text.append(data)


def page(record, decode=str, **more):
    return of(record, decode=decode, name=more.pop("name", "a"), **more)["trajectories.html"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_wrote_never_becomes_markup(text):
    plain, hostile = Page(page(made())), Page(page(made(text=text), lambda t: text, name=text))
    assert hostile.attributes <= ATTRIBUTES
    assert hostile.tags.count("script") == hostile.tags.count("style") == 1
    assert set(hostile.tags) - {"span"} == set(plain.tags) - {"span"}
    assert hostile.tags.count("article") == plain.tags.count("article") == 4
    shown = "".join(hostile.text)
    for hidden in "\x00\x1b\x7f\x85\u202e\u2066\u200f\u2028\ufeff":
        assert hidden not in shown


def test_a_page_loads_nothing_and_keeps_nothing():
    data = page(made())
    for word in (b"fetch(", b"localStorage", b"src=", b"@import", b"url(", b" style="):
        assert word not in data


def test_tokens_turns_calls_and_ends_are_told(vault):
    record, decode = vault
    shown = Page(page(record, decode))
    assert shown.tags.count("article") == 16
    assert shown.tags.count("li") == len(record.Z.arrays["turn_episode"])
    sampled = int(record.Z.is_action_T.sum())
    # the legend has eleven swatches
    assert shown.tags.count("b") == sampled + 11
    text = "".join(shown.text)
    assert "out of turns" in text
    assert "All 16 episodes are here." in text


def test_the_prompt_of_a_problem_is_shown_once_where_its_attempts_share_it():
    record = made(1, 4)
    assert page(record).count(b"<i title=7>7</i>" * 3) == 1
    ids = record.Z.token_ids_T.copy()
    ids[0] = 8
    other = record.Z.replace({}, token_ids=ids)
    assert page(replace(record, Z=other)).count(b"<i title=7>7</i>" * 2) == 4


def test_episodes_beyond_the_limit_are_counted():
    data = page(made(40, 4, 1, 1))
    assert b"64 of 160 episodes are here, 96 are left out" in data
    assert data.count(b"<article") == 64


def test_long_episodes_lose_their_middles():
    data = page(made(8, 8, 2, 1000))
    assert b"tokens left out" in data
    assert len(data) < BYTES


def test_a_page_never_passes_its_size():
    data = page(made(8, 8, 50, 20, text="<" * 5000), lambda t: '"' * 500)
    assert len(data) <= BYTES
    assert b"are left out" in data
    assert b"until the page has 4 MB" in data


def test_episodes_without_turns_are_shown():
    empty = np.zeros(0, np.int64)
    record = made(1, 2, 1, 1)
    Z = record.Z
    arrays = Z.arrays | {
        "is_action": np.zeros(len(Z.token_ids_T), bool), "turn_start": empty, "turn_end": empty,
        "turn_rewards": empty.astype(float), "turn_episode": empty.astype(np.int32),
    }  # fmt: skip
    none = Trajectories({**Z.meta, "episodes": [{"turns": []}] * 2}, arrays)
    assert page(replace(record, Z=none)).count(b"<article") == 2


def test_an_action_of_broken_characters_is_read_together():
    assert b"read together: hi" in page(made(), lambda t: "\ufffd")


def test_a_problem_is_asked_in_its_last_message():
    assert asked({"messages": [{"content": "a"}, {"content": "b\n c"}]}) == "b c"
    assert asked({"text": "x"}) == "x"
    for odd in ([1], {"messages": [3]}, {"messages": [{"content": [1]}]}, {}):
        assert isinstance(asked(odd), str)
