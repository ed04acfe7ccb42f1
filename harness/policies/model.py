"""A model as an artifact: tensors, architecture and tokenizer; and the module that it is run as.

    a = id("model", {architecture, tokenizer}, tensors)

Tensors carry the module's own names, tied ones once, persistent buffers included. The architecture
is the configuration without paths, library versions and run-time switches, so that an identifier
does not depend on who saved the model, or in how many files. The chat template is not in a: it is
text that the serializer uses, and stands in ι.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.forms import Artifact
from harness.policies import critic
from harness.policies import tokenizer as tokenizers
from harness.policies.tokenizer import load as load_tokenizer

__all__ = [
    "Model", "architecture_of", "build_module", "load_tokenizer", "read_folder", "tensors_of",
    "write_folder",
]  # fmt: skip

VOLATILE = {
    "architectures", "chunk_size_feed_forward", "dtype", "id2label", "label2id",
    "output_attentions", "output_hidden_states", "problem_type", "quantization_config",
    "return_dict", "torch_dtype", "transformers_version", "transformers.js_config", "use_cache",
}  # fmt: skip
"""Keys, beside private ones, that do not change what the tensors compute, or that they say."""

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Model(Artifact):
    """An artifact of kind "model" and the files of its tokenizer, which its meta identifies."""

    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(
        cls, architecture: Mapping[str, Any], files: Mapping[str, bytes], tensors: Mapping[str, Any]
    ) -> Model:
        meta = {"architecture": architecture, "tokenizer": tokenizers.identify(files)}
        return cls("model", meta, dict(sorted(tensors.items())), dict(files))

    def with_tensors(self, tensors: Mapping[str, Any]) -> Model:
        """The model of the same architecture and tokenizer with other tensors."""
        return replace(self, tensors=dict(sorted(tensors.items())))


def architecture_of(config: Any) -> dict[str, Any]:
    """The canonical document of a transformers configuration: volatile and empty keys left out."""
    return _stable(json.loads(json.dumps(config.to_dict(), default=str)))


def _stable(document: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _stable(value) if isinstance(value, dict) else value
        for key, value in document.items()
        if key not in VOLATILE and not key.startswith("_") and value is not None
    }


def config_of(model: Artifact) -> Any:
    """The transformers configuration of a model."""
    from transformers import AutoConfig

    document = dict(model.meta["architecture"])
    return AutoConfig.for_model(document.pop("model_type"), **document)


def build_module(model: Artifact, *, attention: str = "sdpa") -> Any:
    """The torch module, in eval mode and in the tensors' dtype, without gradients.

    Its parameters share memory with the artifact's tensors: clone before you train in place.
    Raises ValueError where the tensors are not those of the architecture.
    """
    from transformers import AutoModelForCausalLM

    with _uninitialised():
        module = AutoModelForCausalLM.from_config(
            config_of(model), attn_implementation=attention, dtype=_dtype(model)
        )
    if critic.has_critic(model.meta["architecture"]):
        critic.attach(module, _dtype(model))
    found = module.load_state_dict(dict(model.tensors), strict=False, assign=True)
    module.tie_weights()
    missing = sorted(set(found.missing_keys) - _tied(module))
    if missing or found.unexpected_keys:
        wrong = (missing or sorted(found.unexpected_keys))[0]
        what = "lacks" if missing else "has no place for"
        raise ValueError(f"the model {what} the tensor {wrong!r} of its architecture")
    return module.requires_grad_(False).eval()


def _dtype(model: Artifact) -> Any:
    """That of most parameters: norms are sometimes kept in a wider one."""
    sizes: dict[Any, int] = {}
    for tensor in model.tensors.values():
        if tensor.is_floating_point():
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.numel()
    return max(sizes, key=lambda dtype: sizes[dtype])


@contextmanager
def _uninitialised() -> Iterator[None]:
    """Weights are about to be replaced: leave their memory as it is, and draw no random number."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        yield


def _tied(module: Any) -> set[str]:
    """Names in the state dict that are another name's tensor."""
    first: dict[int, str] = {}
    repeated = set()
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            repeated.add(name)
    return repeated


def tensors_of(module: Any) -> dict[str, Any]:
    """Parameters and persistent buffers by name, sorted; a tied tensor once, by its first name."""
    kept = set(module.state_dict())
    tensors = {name: p.detach() for name, p in module.named_parameters()}
    tensors |= {name: b.detach() for name, b in module.named_buffers() if name in kept}
    return dict(sorted(tensors.items()))


def write_folder(model: Artifact, folder: str | Path) -> Path:
    """An ordinary Hugging Face folder: configuration, weights in safetensors, tokenizer; and the
    head of a critic, where there is one, in a file of its own."""
    from safetensors.torch import save_file
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(model)
    config.architectures = [CLASSES[config.model_type]]
    config.dtype = _dtype(model)
    config.save_pretrained(folder)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.tensors.items()}
    weights, head = critic.head_parts(tensors)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if head:
        save_file(head, folder / critic.FILE, metadata={"format": "pt"})
    for name, content in getattr(model, "files", {}).items():
        (folder / name).write_bytes(content)
    return folder


def advice(model: Artifact) -> str:
    """What is worth saying of a model's dtype on this machine; empty if nothing is."""
    import torch

    narrow = _dtype(model) == torch.bfloat16 and not torch.cuda.is_available()
    if not narrow or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return ""
    return (
        "this processor has no arithmetic in bfloat16 and emulates it, many times slower; "
        "model.dtype=float32 is the faster choice here"
    )


def check_dtype(dtype: str) -> None:
    """Raises ValueError for what a model's tensors cannot be."""
    if dtype not in DTYPES:
        raise ValueError(f"model.dtype is {dtype!r}; it is one of {', '.join(DTYPES)}")


def read_folder(folder: str | Path, *, dtype: str = "float32") -> Model:
    """The model of a Hugging Face folder. Raises ValueError where it is not one."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = Path(folder).expanduser()
    check_dtype(dtype)
    weights = {*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")}
    weights.discard(folder / critic.FILE)
    if not (folder / "config.json").is_file() or not weights:
        raise ValueError(
            f"{folder} is not a model folder; it needs config.json, safetensors weights and "
            "a tokenizer"
        )
    files = tokenizers.read(folder)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=getattr(torch, dtype), local_files_only=True,
                output_loading_info=True,
            )  # fmt: skip
        module, info = loaded
    # what a damaged folder raises is transformers' affair and of any kind: it is a refusal here
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{folder} cannot be loaded as a causal language model: {first}") from None
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(f"{folder} holds quantised weights; give a folder of dense ones")
    # transformers draws what a folder lacks at random
    for name in sorted(info["missing_keys"]):
        raise ValueError(f"{folder} lacks the tensor {name!r} of its architecture")
    architecture, tensors = architecture_of(config), tensors_of(module)
    if critic.has_critic(architecture):
        tensors |= critic.read_head(folder, getattr(torch, dtype))
    return Model.of(architecture, files, tensors)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers: the harness shows its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
