"""A critic as a component of M: a linear head on the hidden states that predict actions.

    V(s_t) = w·h_{t-1} + b        h_{t-1}: the last hidden state before token t is known

Its tensors are `value_head.weight` [1, H] and `value_head.bias` [1] of the model, zero at first,
and its architecture says `value_head`: so it is in a, and an optimizer keeps moments of it. In a
folder it has a file of its own, beside weights that transformers and vLLM load as they always do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "value_head"
FILE = f"{NAME}.safetensors"


def has_critic(architecture: Mapping[str, Any]) -> bool:
    return bool(architecture.get(NAME))


def with_critic(model: Any) -> Any:
    """The model with a head of zeros; itself where it has one."""
    import torch

    architecture = model.meta["architecture"]
    if has_critic(architecture):
        return model
    width = {**architecture, **architecture.get("text_config", {})}["hidden_size"]
    dtype = max(model.tensors.values(), key=lambda tensor: tensor.numel()).dtype
    head = {"weight": torch.zeros(1, width, dtype=dtype), "bias": torch.zeros(1, dtype=dtype)}
    tensors = {**model.tensors, **{f"{NAME}.{part}": value for part, value in head.items()}}
    return type(model).of({**architecture, NAME: True}, model.files, tensors)


def attach(module: Any, dtype: Any) -> None:
    """Give a module a place for the head, without numbers yet."""
    from torch import nn

    width = module.config.get_text_config().hidden_size
    module.add_module(NAME, nn.Linear(width, 1, dtype=dtype, device="meta"))


def head_parts(tensors: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors of the language model, and those of the head."""
    own = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{NAME}.")}
    return {name: tensor for name, tensor in tensors.items() if name not in own}, own


def read_head(folder: Path, dtype: Any) -> dict[str, Any]:
    """The head's tensors of a folder. Raises ValueError where its file is missing."""
    from safetensors.torch import load_file

    if not (folder / FILE).is_file():
        raise ValueError(f"{folder} lacks {FILE}, and its config.json says that there is a critic")
    return {name: tensor.to(dtype) for name, tensor in load_file(folder / FILE).items()}
