"""Low-rank adapters, in the layers of peft.

    y = W x + s·B(A x)        s = alpha / rank, or alpha / √rank (rank-stabilised)

A [rank, in] and B [out, rank] are the model's own tensors, `<layer>.lora_A.weight` and
`<layer>.lora_B.weight` as peft writes them; W is the base's, under the name that it has there.

Source: LoRA, arXiv 2106.09685; rank-stabilised, arXiv 2312.03732.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEY = "adapter"
"""What a model's meta says of its adapter: rank, alpha, targets, rslora."""
NAME = "default"
"""Of the one adapter in a module."""
PREFIX = "base_model.model."
"""Of tensors in peft's files."""


def plain(name: str) -> str:
    """What a module's parameter is called in an artifact."""
    return re.sub(rf"\.(lora_[AB])\.{NAME}\.", r".\1.", name.replace(".base_layer.", "."))


def inject(module: Any, adapter: Mapping[str, Any]) -> None:
    """Give a module the layers of an adapter, without numbers yet, and draw none.

    Raises ValueError where peft is missing, and for targets that are not linear layers within.
    """
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    peft = _peft()
    linear = (nn.Linear, Conv1D)
    parts = dict(module.named_modules())
    head = module.get_output_embeddings()
    # the head is evaluated in chunks, by its weight alone
    fit = {n for n, m in parts.items() if isinstance(m, linear) and m is not head}
    for target in () if adapter["targets"] == "all-linear" else adapter["targets"]:
        named = {n for n in parts if n == target or n.endswith(f".{target}")}
        if not named or named - fit:
            what = "is no layer of this model" if not named else "is no linear layer within it"
            leaves = sorted({n.rpartition(".")[2] for n in fit})
            raise ValueError(
                f"model.targets names {target!r}, which {what}; there are {', '.join(leaves)}, or "
                "[all-linear]"
            )
    config = config_of(adapter)
    # peft turns what lies transposed, and says so unless it is told
    config.fan_in_fan_out = any(isinstance(parts[n], Conv1D) for n in fit)
    peft.inject_adapter_in_model(config, module, NAME, low_cpu_mem_usage=True)


def config_of(adapter: Mapping[str, Any]) -> Any:
    """peft's configuration of an adapter."""
    targets = adapter["targets"]
    return _peft().LoraConfig(
        r=adapter["rank"], lora_alpha=adapter["alpha"], use_rslora=adapter["rslora"],
        target_modules=targets if isinstance(targets, str) else list(targets), lora_dropout=0.0,
        bias="none", task_type="CAUSAL_LM",
    )  # fmt: skip


def layers(module: Any) -> dict[str, Any]:
    """The adapted layers of a module by name."""
    from peft.tuners.lora import LoraLayer

    return {n: m for n, m in module.named_modules() if isinstance(m, LoraLayer)}


def merged(model: Any) -> Any:
    """The model without a base that computes the same: W + s·B·A, summed in float32 and rounded
    once; itself where it has no base."""
    import torch

    from harness.policies.model import Model, build_module

    if getattr(model, "base", None) is None:
        return model
    tensors = {**model.base.tensors, **model.tensors}
    if KEY in model.meta:
        wide = {name: t.float() for name, t in model.tensors.items()}
        tensors = {n: t for n, t in tensors.items() if ".lora_" not in n}
        for name, layer in layers(build_module(model.with_tensors(wide))).items():
            weight = tensors[f"{name}.weight"]
            with torch.no_grad():
                sum_ = weight.float() + layer.get_delta_weight(NAME).float()
            tensors[f"{name}.weight"] = sum_.to(weight.dtype)
    return Model.of(model.meta["architecture"], model.files, tensors)


def write_adapter(model: Any, folder: str | Path) -> Path:
    """A folder that peft loads on the model's base, beside the tokenizer.

    Raises ValueError where the model has no adapter.
    """
    from safetensors.torch import save_file

    if KEY not in model.meta:
        raise ValueError("this model has no adapter; leave out --adapter")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(model.meta[KEY])
    config.inference_mode, config.target_modules = True, sorted(config.target_modules)
    config.save_pretrained(folder)
    adapter = {n: t.cpu().contiguous() for n, t in model.tensors.items() if ".lora_" in n}
    named = {f"{PREFIX}{name}": tensor for name, tensor in adapter.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    for name, content in model.files.items():
        (folder / name).write_bytes(content)
    return folder


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise ValueError(
            "the model has a LoRA adapter, and peft is not installed; `pip install "
            "'harness[lora]'` brings it"
        ) from None
    return peft
