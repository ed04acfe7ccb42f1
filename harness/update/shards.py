"""What a rank holds of (M, s), whatever ZeRO stage shards it, and how ranks put it together.

A tensor lies flat, and a rank holds the elements from `start` on: all of them where nothing is
sharded, none where a small tensor went to other ranks. Parts of one tensor do not overlap, so that

    whole = Σ_ranks bits(part, placed among zeros)

is exact as a sum of integers: no bit changes on the way, not even the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Part:
    """The elements that this rank holds of a tensor, as a view of the engine's buffers."""

    held: Tensor
    start: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor, shape: tuple[int, ...], start: int = 0) -> Part:
        """A part without the padding behind the tensor's last element."""
        flat = tensor.detach().view(-1)
        length = max(min(flat.numel(), prod(shape) - start), 0)
        return cls(flat[:length], start, shape)

    def put(self, whole: Tensor) -> None:
        """Take this part's elements from a whole tensor."""
        flat = whole.reshape(-1)[self.start : self.start + self.held.numel()]
        self.held.copy_(flat)

    def moved(self, held: Tensor) -> Part:
        """The same elements in another place."""
        return replace(self, held=held)


def model_parts(
    places: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], rank: int
) -> dict[str, Part]:  # fmt: skip
    """A model's own parameters and persistent buffers by name.

    shapes: of the parameters, whole.
    """
    parts = {}
    for name, p in places.items():
        if (own := getattr(p, "ds_tensor", None)) is not None:
            parts[name] = Part.of(own.data, shapes[name], rank * own.numel())
        else:
            parts[name] = Part.of(p.data, shapes.get(name, tuple(p.shape)))
    return parts


def optimizer_parts(
    names: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], zero: Any, base: Any,
    rank: int,
) -> dict[str, Part]:  # fmt: skip
    """Master and moments of every parameter by `kind/name`."""
    parts = {}
    unsharded = _unsharded(names, zero)
    for name, p in names.items():
        for kind in ("master", *MOMENTS):
            key = None if kind == "master" else kind
            if hasattr(p, "ds_tensor"):
                held, _ = zero._get_fp32_opt_state_partition(p, False, key)
                part = Part.of(held, shapes[name], rank * held.numel())
            elif hasattr(p, "_hp_mapping"):
                part = _fragment(p._hp_mapping, key, shapes[name])
            else:
                stepped = unsharded[id(p)]
                held = stepped.data if key is None else base.state[stepped][key]
                part = Part.of(held, shapes[name])
            parts[f"{kind}/{name}"] = part
    return parts


def _fragment(mapping: Any, key: str | None, shape: tuple[int, ...]) -> Part:
    """ZeRO 1 and 2: a parameter's part of a flat group, or nothing."""
    if mapping is None:
        return Part(torch.empty(0), 0, shape)
    return Part.of(mapping.get_hp_fragment(key), shape, mapping.lp_fragment_address.start)


def _unsharded(names: Mapping[str, Any], zero: Any) -> dict[int, Any]:
    """Without ZeRO: the parameter that the optimizer steps, by the model's parameter."""
    if hasattr(zero, "fp16_groups") and hasattr(zero, "fp32_groups"):
        pairs = zip(zero.fp16_groups, zero.fp32_groups, strict=True)
        return {id(a): b for low, high in pairs for a, b in zip(low, high, strict=True)}
    return {id(p): p for p in names.values()}


def stepped(zero: Any, base: Any) -> list[Tensor]:
    """The tensors that the optimizer steps: parameters, or this rank's flat groups of masters."""
    groups = getattr(zero, "fp32_partitioned_groups_flat", None)
    if groups is not None:
        return list(groups)
    return [p for group in base.param_groups for p in group["params"]]


def gathered(parts: Mapping[str, Part], group: Any, leads: bool) -> Iterator[tuple[str, Tensor]]:
    """The whole tensors on rank 0, one at a time; on other ranks what they gave. Collective."""
    for name, part in parts.items():
        size = prod(part.shape) * part.held.element_size()
        # in words of 32 bits, which every backend can sum
        words = torch.zeros((size + 3) // 4, dtype=torch.int32, device=part.held.device)
        flat = words.view(torch.uint8)[:size].view(part.held.dtype)
        flat[part.start : part.start + part.held.numel()] = part.held
        words = words.cpu()
        torch.distributed.reduce(words, 0, group=group)
        whole = words.view(torch.uint8)[:size].view(part.held.dtype).view(part.shape)
        yield name, whole if leads else part.held
