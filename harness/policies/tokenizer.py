"""A tokenizer as files and an identifier, and the object that encodes with it.

The identifier is over the canonical content of `tokenizer.json` (padding and truncation left out:
we never pad or cut) and the special tokens. The chat template is not in it: it is part of ι.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness import identity

FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


def identify(files: Mapping[str, bytes]) -> str:
    """The identifier of a tokenizer by its files."""
    content = json.loads(files["tokenizer.json"])
    body = {k: v for k, v in content.items() if k not in ("padding", "truncation")}
    document = {"tokenizer": body, "special": special_tokens(files)}
    return identity.digest("tokenizer", identity.canonical(document))


def special_tokens(files: Mapping[str, bytes]) -> dict[str, str]:
    """Special tokens by role."""
    config = json.loads(files.get("tokenizer_config.json", b"{}"))
    tokens = {name: config.get(name) for name in SPECIAL}
    named = {n: t["content"] if isinstance(t, dict) else t for n, t in tokens.items()}
    return {name: token for name, token in named.items() if token}


def chat_template(files: Mapping[str, bytes]) -> str | None:
    """The text of the chat template, where the tokenizer has one."""
    if "chat_template.jinja" in files:
        return files["chat_template.jinja"].decode()
    template = json.loads(files.get("tokenizer_config.json", b"{}")).get("chat_template")
    if isinstance(template, list):
        return next((t["template"] for t in template if t["name"] == "default"), None)
    return template


def read(folder: Path) -> dict[str, bytes]:
    """A folder's tokenizer files. Raises ValueError where it has no tokenizer."""
    if not (folder / "tokenizer.json").is_file():
        return _converted(folder)
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}


def _converted(folder: Path) -> dict[str, bytes]:
    """The files of a tokenizer that is kept in an older form, as transformers saves it."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # what is raised for a folder without a tokenizer is transformers' affair and of any kind
    except Exception:
        raise ValueError(f"{folder} has no tokenizer; it needs tokenizer.json") from None
    with tempfile.TemporaryDirectory() as made:
        tokenizer.save_pretrained(made)
        if not (Path(made) / "tokenizer.json").is_file():
            raise ValueError(f"{folder} has a slow tokenizer only; it needs tokenizer.json")
        return read(Path(made))


def load(model: Any) -> Any:
    """The transformers tokenizer of a model with `files`, one object per content."""
    return _load(tuple(sorted(model.files.items())))


@lru_cache(maxsize=8)
def _load(files: tuple[tuple[str, bytes], ...]) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    content = dict(files)
    # from the file's own pipeline, so that what encodes is what was identified
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(content["tokenizer.json"].decode()),
        chat_template=chat_template(content),
        clean_up_tokenization_spaces=False,
        **special_tokens(content),
    )
