"""ι: how a model is run as a policy.

Everything that can change a sampled token and that we set: the serializer with its template, the
sampling family, the stopping rules, and the engine's numerical knobs. Its identifier is over the
canonical document of all of it, and is half of the stamp ν = (a, ι).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from harness import identity
from harness.forms import Inference as Document

ATTENTION = ("eager", "sdpa", "flash_attention_2")


@dataclass(frozen=True)
class Inference:
    """Inference settings. `bind` fills in what the serializer takes from the model's tokenizer.

    Degenerate: temperature 0 is greedy, and top_k 0, top_p 1 and min_p 0 truncate nothing.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    serializer: Any
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_turn_tokens: int = 64
    """Sampled tokens a turn."""
    max_turns: int = 8
    max_episode_tokens: int = 512
    """Sampled tokens an episode."""
    context: int = 2048
    """Tokens of prompt, actions and observations together."""
    engine: str = "resident"
    dtype: str = "model"
    """Of the computation; `model`: that of the tensors."""
    attention: str = "sdpa"
    threads: int = 1
    """Host threads of the engine."""
    decode_rows: int = 0
    """Live episodes decoded together; 0: all."""
    prefill_rows: int = 8
    """Prompts prefilled together."""
    deterministic: bool = True
    """Torch's deterministic algorithms."""
    ranks: int = field(default=1, metadata={"identity": "unless default"})
    """Over which the problems of a batch are spread."""

    def __post_init__(self) -> None:
        positive = ("max_turn_tokens", "max_turns", "max_episode_tokens", "context", "threads",
                    "prefill_rows", "ranks")  # fmt: skip
        checks = [(self.temperature >= 0, "temperature", "0 (greedy) or more"),
                  (self.top_k >= 0, "top_k", "0 (off) or more"),
                  (0 < self.top_p <= 1, "top_p", "in (0, 1]"),
                  (0 <= self.min_p < 1, "min_p", "in [0, 1)"),
                  (self.decode_rows >= 0, "decode_rows", "0 (all) or more"),
                  (self.attention in ATTENTION, "attention", f"one of {', '.join(ATTENTION)}"),
                  (self.dtype == "model", "dtype", "model: that of model.dtype")]  # fmt: skip
        checks += [(getattr(self, name) >= 1, name, "at least 1") for name in positive]
        for good, name, right in checks:
            if not good:
                raise ValueError(f"inference.{name} is {getattr(self, name)}; it must be {right}")
        if self.max_turn_tokens > self.max_episode_tokens:
            raise ValueError(
                f"inference.max_turn_tokens is {self.max_turn_tokens}; it must be at most "
                f"max_episode_tokens {self.max_episode_tokens}"
            )
        if self.max_episode_tokens > self.context:
            raise ValueError(
                f"inference.max_episode_tokens is {self.max_episode_tokens}; it must be at most "
                f"context {self.context}"
            )

    def bind(self, tokenizer: Any) -> Inference:
        """The same settings with the serializer's template read from the tokenizer."""
        return replace(self, serializer=self.serializer.bind(tokenizer))

    @property
    def truncated(self) -> bool:
        """Whether the sampled family is not the whole softmax."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def sampling(self) -> dict[str, Any]:
        """The family that log-probabilities belong to: Z's and Γ's `sampling`."""
        return {"temperature": float(self.temperature), "top_k": self.top_k,
                "top_p": float(self.top_p), "min_p": float(self.min_p)}  # fmt: skip

    @cached_property
    def document(self) -> Document:
        """The canonical document, a value that a store can keep."""
        return Document(identity.settings(self))

    @property
    def id(self) -> str:
        return self.document.id
