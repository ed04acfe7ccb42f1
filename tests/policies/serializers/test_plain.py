import pytest

from harness.policies.model import load_tokenizer
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(Tiny().initial())


def words(tokenizer, ids):
    return " ".join(tokenizer.convert_ids_to_tokens(ids))


def test_a_conversation_in_tokens(tokenizer):
    plain = Plain().bind(tokenizer)
    ids = plain.begin(tokenizer, [{"role": "user", "content": "vault closed"}], [])
    action = [tokenizer.convert_tokens_to_ids("look")]
    ids += action + plain.extend(tokenizer, action, [{"role": "tool", "content": "code 3"}])
    assert words(tokenizer, ids) == "<s> <user> vault closed <policy> look <tool> code 3 <policy>"


def test_actions_are_their_words(tokenizer):
    ids = [tokenizer.convert_tokens_to_ids(word) for word in ("code", "3", "</s>")]
    assert Plain().parse(tokenizer, ids).text == "code 3"
    assert Plain().parse(tokenizer, ids).calls == ()
    assert Plain().stops(tokenizer) == (tokenizer.eos_token_id,)


def test_a_tokenizer_without_role_tokens_is_refused():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    other = PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="<unk>")
    message = (
        r"^inference.serializer plain needs the token <system>, which this tokenizer lacks; "
        r"use inference=chat$"
    )
    with pytest.raises(ValueError, match=message):
        Plain().bind(other)
