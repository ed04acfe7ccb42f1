from dataclasses import replace

import pytest

from harness.pages.card import LIMIT, card
from harness.pages.reading import read
from harness.round import Cost, Proposal

from .conftest import HOSTILE, made


def test_a_card_says_what_was_decided_and_what_to_type():
    text = card(read(made(decision="reject", text="kl")), "quickstart", {})
    assert text.startswith("## quickstart, round 3: REJECTED\n")
    assert "| kl | **not passed** | kl 0.1 |" in text
    assert "    python -m harness show quickstart@3" in text
    assert "| tokens/sampled | 12 |" in text
    assert "| starting model | aaaaaaaaaaaa |" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_card_is_markup_that_others_wrote(text):
    record = made(text=text)
    shown = card(read(record), text, {text: "#a"})
    shown.encode()
    prose = [line for line in shown.splitlines() if not line.startswith("    ")]
    bare = "\n".join(prose).replace("(<#a>)", "")
    assert "<" not in bare.replace("\\<", "")
    assert "](" not in bare.replace("\\](", "")


def test_a_card_is_shortened_until_it_fits():
    record = made()
    gates = [{"name": "<" * 500, "passed": False, "numbers": {"x" * 500: 1.0}}] * 100
    cost = Cost({f"{'|' * 90}{i}": i for i in range(100)}, {})
    report = {"gates": gates, "metrics": {}}
    proposal = Proposal(record.proposal.decision, record.proposal.state, report)
    links = {f"{i}": "https://" + "a" * 1000 for i in range(50)}
    text = card(read(replace(record, proposal=proposal, cost=cost)), "n" * 5000, links)
    assert len(text) <= LIMIT
    assert "more rows are in the record" in text
