import re

import numpy as np

from harness.pages.reading import read
from harness.pages.tokens import Tokens

from .conftest import made


def test_a_sampled_token_has_the_colour_of_its_credit():
    record = made()
    tokens = Tokens(read(record), str)
    text = tokens.spans(0, 9)
    assert text.startswith("<i title=7>7</i>" * 3 + "<b class=")
    signs = re.findall(r"<b class=([pnz])", text)
    credit = record.G.advantages_T[:9][record.Z.is_action_T[:9]]
    assert signs == ["p" if a > 0 else "n" for a in credit]
    t = int(np.flatnonzero(record.Z.is_action_T)[0])
    logprob, advantage = record.Z.logprobs_T[t], record.G.advantages_T[t]
    assert (
        f'title="{record.Z.token_ids_T[t]}: log p {logprob:.3f}, credit {advantage:+.3f}"' in text
    )


def test_words_without_spaces_are_shown_apart():
    for decode, words in ((str, True), (lambda t: f" {t}", False)):
        tokens = Tokens(read(made()), decode)
        tokens.spans(0, 9)
        assert tokens.words is words


def test_parts_of_characters_are_noticed():
    tokens = Tokens(read(made()), lambda t: "\ufffd")
    assert tokens.broken(3, 4)
    assert not Tokens(read(made()), str).broken(3, 4)
