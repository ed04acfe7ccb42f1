"""A model as an artifact: tensors, architecture and tokenizer; and the module that it is run as.

    a = id("model", {architecture, tokenizer}, tensors)

Tensors carry the module's own names, tied ones once, persistent buffers included. The architecture
is the configuration without paths, library versions and run-time switches, so that an identifier
does not depend on who saved the model, or in how many files. The chat template is not in a: it is
text that the serializer uses, and stands in ι.

A model on a base is the base's identifier and the tensors that are its own: those that replace the
base's, or an adapter's. Only these are trained and stored; the rest is the base's, once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.forms import Artifact
from harness.policies import adapter, critic
from harness.policies import tokenizer as tokenizers
from harness.policies.tokenizer import load as load_tokenizer

__all__ = [
    "Model", "architecture_of", "build_module", "load_tokenizer", "places_of", "read_folder",
    "tensors_of", "write_folder",
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
    """An artifact of kind "model", the files of its tokenizer, and its base, where it has one: its
    meta identifies both."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    base: Model | None = None

    @classmethod
    def of(
        cls, architecture: Mapping[str, Any], files: Mapping[str, bytes], tensors: Mapping[str, Any]
    ) -> Model:
        meta = {"architecture": architecture, "tokenizer": tokenizers.identify(files)}
        return cls("model", meta, dict(sorted(tensors.items())), dict(files))

    @classmethod
    def on(
        cls, base: Model, tensors: Mapping[str, Any], adapted: Mapping[str, Any] | None = None
    ) -> Model:
        """The model with these tensors of its own on a base. adapted: what an adapter is like."""
        meta = {**base.meta, "base": base.id} | ({} if adapted is None else {adapter.KEY: adapted})
        return cls("model", meta, dict(sorted(tensors.items())), base.files, base)

    def with_tensors(self, tensors: Mapping[str, Any]) -> Model:
        """The same model with other tensors of its own."""
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

    Its parameters share memory with the tensors of the artifact and its base: clone those that you
    train in place. Raises ValueError where the tensors are not those of the architecture.
    """
    from transformers import AutoModelForCausalLM

    with _uninitialised():
        module = AutoModelForCausalLM.from_config(
            config_of(model), attn_implementation=attention, dtype=_dtype(model)
        )
    if critic.has_critic(model.meta["architecture"]):
        critic.attach(module, _dtype(model))
    if adapter.KEY in model.meta:
        adapter.inject(module, model.meta[adapter.KEY])
    plain = _naming(model.meta)
    names = {plain(name): name for name in module.state_dict()}
    tensors = {names.get(name, name): tensor for name, tensor in _every(model).items()}
    found = module.load_state_dict(tensors, strict=False, assign=True)
    module.tie_weights()
    missing = sorted(set(found.missing_keys) - _tied(module))
    if missing or found.unexpected_keys:
        wrong = (missing or sorted(found.unexpected_keys))[0]
        what = "lacks" if missing else "has no place for"
        raise ValueError(f"the model {what} the tensor {wrong!r} of its architecture")
    return module.requires_grad_(False).eval()


def _every(model: Artifact) -> dict[str, Any]:
    """A model's own tensors, and its base's where it has none of that name."""
    base = getattr(model, "base", None)
    return {**({} if base is None else base.tensors), **model.tensors}


def _naming(meta: Mapping[str, Any]) -> Callable[[str], str]:
    """What a parameter of a model's module is called in the artifact."""
    return adapter.plain if adapter.KEY in meta else str


def _dtype(model: Artifact) -> Any:
    """That of most parameters: norms are sometimes kept in a wider one."""
    sizes: dict[Any, int] = {}
    for tensor in _every(model).values():
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


def places_of(module: Any, meta: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Where the module of a model with this meta keeps tensors: parameters and buffers by name."""
    plain = _naming(meta)
    every = [*module.named_parameters(), *module.named_buffers()]
    named = {plain(name): place for name, place in every}
    return {name: named[name] for name in names}


def tensors_of(module: Any) -> dict[str, Any]:
    """Parameters and persistent buffers by name, sorted; a tied tensor once, by its first name."""
    kept = set(module.state_dict())
    tensors = {name: p.detach() for name, p in module.named_parameters()}
    tensors |= {name: b.detach() for name, b in module.named_buffers() if name in kept}
    return dict(sorted(tensors.items()))


def write_folder(model: Artifact, folder: str | Path) -> Path:
    """An ordinary Hugging Face folder: configuration, weights in safetensors, tokenizer; and the
    head of a critic, where there is one, in a file of its own. A model on a base is written as one
    without, its adapter merged."""
    from safetensors.torch import save_file
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = adapter.merged(model)
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


def check_base(base: Any) -> None:
    """Raises ValueError for what gives no model to stand on."""
    if not hasattr(base, "initial"):
        raise ValueError(
            f"model.base is {base!r}, which gives no model; choose one, such as "
            "model@model.base=smollm2"
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
