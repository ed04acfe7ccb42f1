"""Turns without markup beyond one token a role, for models with a small vocabulary of words.

    <s> <user> vault closed <policy> look <tool> code 3 <policy> 3

A role's token opens its turn and so closes the one before; nothing is added to close a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.forms import Action

ROLES = {"system": "<system>", "user": "<user>", "tool": "<tool>", "assistant": "<policy>"}


@dataclass(frozen=True)
class Plain:
    """Words and role tokens. Tools are not shown and calls not parsed: an action is its words.

    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"

    def bind(self, tokenizer: Any) -> Plain:
        """Itself, where the tokenizer has the role tokens; ValueError where it lacks one."""
        for token in ROLES.values():
            if tokenizer.convert_tokens_to_ids(token) in (None, tokenizer.unk_token_id):
                raise ValueError(
                    f"inference.serializer plain needs the token {token}, which this tokenizer "
                    "lacks; use inference=chat"
                )
        return self

    def begin(
        self, tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()
    ) -> list[int]:
        return [tokenizer.bos_token_id, *self._say(tokenizer, messages)]

    def extend(
        self, tokenizer: Any, action_ids: Sequence[int], messages: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        return self._say(tokenizer, messages)

    def parse(self, tokenizer: Any, action_ids: Sequence[int]) -> Action:
        return Action(tokenizer.decode(list(action_ids), skip_special_tokens=True).strip())

    def stops(self, tokenizer: Any) -> tuple[int, ...]:
        return (tokenizer.eos_token_id,)

    def _say(self, tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        ids = []
        for message in messages:
            ids.append(tokenizer.convert_tokens_to_ids(ROLES[message["role"]]))
            ids.extend(tokenizer.encode(message["content"], add_special_tokens=False))
        return [*ids, tokenizer.convert_tokens_to_ids(ROLES["assistant"])]
