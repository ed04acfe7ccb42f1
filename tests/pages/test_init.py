"""The entry point: which pages, of which bytes, in what time."""

import time
from dataclasses import replace

import pytest

from harness import pages
from harness.round import Decision

from .conftest import made


def word(token):
    return f" w{token}"


def test_a_round_has_four_pages_of_equal_bytes_each_time(vault):
    record, decode = vault
    first = pages.of(record, decode=decode, name="quickstart")
    assert sorted(first) == ["card.md", "credit.svg", "episodes.csv", "trajectories.html"]
    assert first == pages.of(replace(record), decode=decode, name="quickstart")


def test_each_token_is_decoded_once():
    seen = []
    pages.of(made(4, 4), decode=lambda t: seen.append(t) or str(t), name="a")
    assert len(seen) == len(set(seen)) > 1


def test_a_rejected_round_is_seen_to_be():
    record = made(decision="reject")
    assert record.proposal.decision is Decision.REJECT
    out = pages.of(record, decode=word, name="a")
    assert b'class="verdict rejected"' in out["trajectories.html"]
    assert b"REJECTED" in out["card.md"]


def test_links_are_addresses_and_nothing_else():
    links = {"run": "#/experiments/1/runs/a", "site": "https://example.org/a?b=1&c=2"}
    out = pages.of(made(), decode=word, name="a", links=links)
    assert b'href="#/experiments/1/runs/a"' in out["trajectories.html"]
    assert b"[run](<#/experiments/1/runs/a>)" in out["card.md"]
    for bad in ("javascript:alert(1)", "https://a b", "https://a\"onclick='", "data:text/html,x"):
        with pytest.raises(ValueError, match="an address begins with http"):
            pages.of(made(), decode=word, name="a", links={"x": bad})


@pytest.mark.parametrize(("shape", "seconds"), [((8, 16, 2, 3), 0.03), ((8, 8, 3, 98), 0.15)])
def test_pages_are_made_fast(shape, seconds):
    record = made(*shape)

    def once():
        start = time.process_time()
        pages.of(record, decode=word, name="a")
        return time.process_time() - start

    # ten times the bound: what is tested is that no page is quadratic
    assert min(once() for _ in range(3)) < 10 * seconds
