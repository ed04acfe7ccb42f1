"""A Llama of a few hundred thousand parameters from seeded weights, with a tokenizer of 40 words.

Every weight matrix is uniform on (-√3·σ, √3·σ), of standard deviation σ = `scale`, norms are 1: a
function of (seed, name), the same on every machine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from harness.policies.critic import with_critic
from harness.policies.drawn import uniform
from harness.policies.model import Model, architecture_of

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<system>", "<user>", "<tool>", "<policy>")
SYMBOLS = tuple("0123456789abcdef")
WORDS = ("look", "open", "vault", "closed", "code", "opened", "wrong", "nothing")
VOCABULARY = SPECIAL + SYMBOLS + WORDS


@dataclass(frozen=True)
class Tiny:
    """A model small enough to learn a small world in seconds.

    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    seed: int = 0
    hidden: int = 96
    layers: int = 2
    heads: int = 4
    intermediate: int = 256
    context: int = 128
    """Positions that the model can attend over."""
    scale: float = 0.08
    """Standard deviation of the weights."""
    dtype: str = "float32"
    critic: bool = field(default=False, metadata={"identity": "unless default"})
    """Whether the model has a value head, of zeros at first."""

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "intermediate", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} is {getattr(self, name)}; it is at least 1")
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"model.hidden is {self.hidden}; it must be a multiple of twice "
                f"model.heads {self.heads}"
            )
        if not self.scale > 0:
            raise ValueError(f"model.scale is {self.scale}; it is a positive number")
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"model.dtype is {self.dtype!r}; it is float32 or bfloat16")

    def initial(self) -> Model:
        import torch
        from transformers import AutoModelForCausalLM

        config = self._config()
        with torch.device("meta"):
            shapes = dict(AutoModelForCausalLM.from_config(config).named_parameters())
        dtype = getattr(torch, self.dtype)
        tensors = {
            name: torch.from_numpy(self._weights(name, tuple(p.shape))).to(dtype)
            for name, p in shapes.items()
        }
        model = Model.of(architecture_of(config), tokenizer_files(), tensors)
        return with_critic(model) if self.critic else model

    def _config(self) -> Any:
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            max_position_embeddings=self.context,
            tie_word_embeddings=True,
            initializer_range=self.scale,
            bos_token_id=VOCABULARY.index("<s>"),
            eos_token_id=VOCABULARY.index("</s>"),
            pad_token_id=VOCABULARY.index("<pad>"),
        )

    def _weights(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return np.ones(shape, np.float32)
        return uniform("tiny", [self.seed, name], shape, 3.0**0.5 * self.scale)


def tokenizer_files() -> dict[str, bytes]:
    """A word-level tokenizer: words are parted by spaces, what it does not know is <unk>."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.decoders import WordPiece

    words = {word: i for i, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = WordPiece(prefix="##", cleanup=False)
    tokenizer.add_special_tokens(list(SPECIAL))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "unk_token": "<unk>", "pad_token": "<pad>", "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": json.dumps(config, sort_keys=True, indent=1).encode(),
    }
