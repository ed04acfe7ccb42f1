"""Turns through a chat template, the tokenizer's own unless another is given.

    begin   = encode(template(messages, generation prompt))
    extend  = encode(what the template puts between an assistant's text and the next header)

`extend` renders a stand-in conversation (user, assistant, the new messages) and takes what follows
the assistant's text: the close of its turn, the observation, the next header. If the action already
ends with the closing token, that one is not repeated; if the budget cut it, it is added. So tokens
that were sampled stay as they are, and nothing earlier is rendered again.

Tools are shown by the template where it knows them, else by a text in the system message
(`preface`), and observations of tools are then user messages within <tool_response>. Calls are read
from the policy's own text: <tool_call>{"name": …, "arguments": {…}}</tool_call>.

A message cannot forge markup: special tokens in its text are broken by a space.
Source: NousResearch, Hermes function calling (the <tool_call> form); Jinja chat templates of
transformers.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from harness.forms import Action
from harness.policies.serializers.calls import parse_calls

PREFACE = (
    "You can call tools. To call one, answer only with\n"
    '<tool_call>{"name": NAME, "arguments": {ARGUMENTS}}</tool_call>\n'
    "and read its result in <tool_response></tool_response>. The tools are\n"
)
TODAY = re.compile(r"strftime_now\s*\(\s*([\"'])(.*?)\1\s*\)")
MARK = "qzxAnswerxzq"
"""The stand-in for an assistant's text: no template adds or alters it."""


@dataclass(frozen=True)
class Chat:
    """A chat template with tools. Unbound it names the tokenizer's template; `bind` spells it.

    Degenerate: with `tools` none the schemas are not shown, and every action is text.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    template: str | None = None
    """Jinja text; None: the tokenizer's own."""
    tools: str = "auto"
    """How schemas are shown: template, preface, none; auto: template where it has `tools`."""
    preface: str = PREFACE
    date: str = "2026-01-01"
    """What a template that asks for today is told: a clock would make it impure."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the template, such as enable_thinking."""

    def __post_init__(self) -> None:
        if self.tools not in ("auto", "template", "preface", "none"):
            raise ValueError(
                f"inference.serializer.tools is {self.tools!r}; it must be auto, template, "
                "preface or none"
            )
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            raise ValueError(
                f"inference.serializer.date is {self.date!r}; it is a day such as 2026-01-01"
            ) from None

    def bind(self, tokenizer: Any) -> Chat:
        """The serializer with its template spelt. Raises ValueError where there is none."""
        template = self.template or tokenizer.chat_template
        if not template:
            raise ValueError(
                "inference.serializer chat needs a chat template, which this tokenizer lacks; "
                "give inference.serializer.template or use another serializer"
            )
        template = self._dated(template)
        tools = self.tools
        if tools == "auto":
            tools = "template" if "tools" in template else "preface"
        bound = replace(self, template=template, tools=tools)
        bound._between(tokenizer, [{"role": "user", "content": "."}])
        return bound

    def begin(
        self, tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()
    ) -> list[int]:
        """The prompt, with the header of the policy's first turn."""
        shown = [self._message(tokenizer, message) for message in messages]
        if tools and self.tools == "preface":
            shown = self._with_preface(shown, tools)
        given = list(tools) if tools and self.tools == "template" else None
        return self._encode(tokenizer, self._render(tokenizer, shown, tools=given))

    def extend(
        self, tokenizer: Any, action_ids: Sequence[int], messages: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """What follows a sampled action: its close, the observation and the next header."""
        ids = self._encode(tokenizer, self._between(tokenizer, messages))
        closed = bool(action_ids) and action_ids[-1] == ids[0] and ids[0] in self.stops(tokenizer)
        return ids[1:] if closed else ids

    def parse(self, tokenizer: Any, action_ids: Sequence[int]) -> Action:
        ids = list(action_ids)
        if ids and ids[-1] in self.stops(tokenizer):
            ids.pop()
        text = tokenizer.decode(ids, skip_special_tokens=False)
        return Action(text.strip(), () if self.tools == "none" else parse_calls(text))

    def stops(self, tokenizer: Any) -> tuple[int, ...]:
        """The token that closes a turn in the template, and the tokenizer's end of text."""
        first = self._encode(tokenizer, self._between(tokenizer, [_USER]))[0]
        ends = {first} & set(tokenizer.all_special_ids) | {tokenizer.eos_token_id}
        return tuple(sorted(end for end in ends if end is not None))

    def _dated(self, template: str) -> str:
        """The template with the declared day in place of every question for today."""
        today = datetime.date.fromisoformat(self.date)
        told = TODAY.sub(lambda asked: json.dumps(today.strftime(asked.group(2))), template)
        if re.search(r"strftime_now\s*\(", told):
            raise ValueError(
                "inference.serializer.template asks for today in a form that is not a literal, so "
                "its text would depend on a clock; write the day into the template"
            )
        return told

    def _between(self, tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> str:
        new = [self._message(tokenizer, message) for message in messages]
        text = self._render(tokenizer, [_USER, {"role": "assistant", "content": MARK}, *new])
        if text.count(MARK) != 1:
            raise ValueError(
                "inference.serializer.template does not repeat an assistant's text once and "
                "unchanged; give one that does"
            )
        return text.split(MARK)[1]

    def _message(self, tokenizer: Any, message: Mapping[str, Any]) -> dict[str, Any]:
        content = message["content"]
        for token in tokenizer.all_special_tokens + list(tokenizer.get_added_vocab()):
            content = content.replace(token, f"{token[0]} {token[1:]}")
        if message["role"] == "tool" and self.tools != "template":
            content = f"<tool_response>{content}</tool_response>"
            return {"role": "user", "content": content}
        return {**message, "content": content}

    def _with_preface(
        self, messages: list[dict[str, Any]], tools: Sequence[Any]
    ) -> list[dict[str, Any]]:
        lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        text = self.preface + lines
        if messages and messages[0]["role"] == "system":
            first = {**messages[0], "content": messages[0]["content"] + "\n\n" + text}
            return [first, *messages[1:]]
        return [{"role": "system", "content": text}, *messages]

    def _render(
        self, tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Any = None
    ) -> str:
        from jinja2 import TemplateError

        try:
            return tokenizer.apply_chat_template(
                list(messages), tools=tools, chat_template=self.template, tokenize=False,
                add_generation_prompt=True, **self.options,
            )  # fmt: skip
        except TemplateError as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from None

    def _encode(self, tokenizer: Any, text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)


_USER = {"role": "user", "content": "."}
