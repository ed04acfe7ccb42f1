"""Model FLOPs of a transformer, from the shapes of its tensors and its configuration.

    one forward of a token            2·N
    attention of a token at place t   4·layers·heads·head_dim·t      (QKᵀ and AV, t tokens seen)

N counts the elements of the matrices that a token is multiplied with: every tensor of two or more
dimensions but look-up tables (an input embedding that is not also the output layer, positions).
A backward pass counts twice a forward; a matrix of a base, which is not trained, has no gradient of
its own, and its backward counts once. Softmax, norms and elementwise work are left out, as usual.

Source: Kaplan et al., arXiv 2001.08361, section 2.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

from harness.forms import Artifact

TABLES = ("embed", "wte", "wpe")
"""Parts of names of look-up tables."""


def matrix_elements(model: Artifact) -> int:
    """N: see the top of this file."""
    return _elements({**_base(model), **_own(model)})


def frozen_elements(model: Artifact) -> int:
    """What of N is of the model's base and not trained."""
    own = _own(model)
    whole = {**_base(model), **own}
    return _elements(whole) - _elements(whole, own)


def _own(model: Artifact) -> dict[str, tuple[int, ...]]:
    """Shapes of a model's own tensors; one whose tensors are not made yet knows them."""
    return getattr(model, "shapes", None) or {n: tuple(t.shape) for n, t in model.tensors.items()}


def _base(model: Artifact) -> dict[str, tuple[int, ...]]:
    """Those of its base, where it has one."""
    base = getattr(model, "base", None)
    return {} if base is None else _own(base)


def _elements(
    shapes: Mapping[str, tuple[int, ...]], counted: Collection[str] | None = None
) -> int:  # fmt: skip
    """Elements of matrices that a token is multiplied with; of those alone that are `counted`."""
    sizes = {name: prod(shape) for name, shape in shapes.items() if len(shape) >= 2}
    tables = {name for name in sizes if any(part in name for part in TABLES)}
    untied = any("lm_head" in name or "embed_out" in name for name in sizes)
    # a tied table is stored once, under the name of the embedding, and is the output layer too
    tokens = {name for name in tables if "pos" not in name and "wpe" not in name}
    left_out = tables if untied else tables - tokens
    kept = {name: size for name, size in sizes.items() if name not in left_out}
    return sum(size for name, size in kept.items() if counted is None or name in counted)


def attention_width(architecture: Mapping[str, Any]) -> int:
    """layers·heads·head_dim. Raises ValueError where the configuration does not say."""
    config = {**architecture, **architecture.get("text_config", {})}

    def read(*names: str) -> int | None:
        return next((int(config[n]) for n in names if config.get(n) is not None), None)

    layers = read("num_hidden_layers", "n_layer", "num_layers")
    width = read("hidden_size", "n_embd", "d_model")
    heads, head_dim = read("num_attention_heads", "n_head", "num_heads"), read("head_dim")
    if heads is not None and head_dim is not None:
        width = heads * head_dim
    if layers is None or width is None:
        raise ValueError(
            "the model's configuration names no layers or width, so its FLOPs cannot be counted; "
            f"it has {', '.join(sorted(config))}"
        )
    return layers * width
