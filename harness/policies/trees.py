"""Whether a module computes prefix trees: found by trying.

A tree needs a mask of who attends to whom, position ids, and a model in which nothing else mixes
tokens. Recurrent layers mix by order, some attention layers refuse a mask with four dimensions or
put one of their own beside it. Two branches on one stem tell: in a tree, whatever the sibling,

    hidden(branch | stem, sibling) = hidden(branch | stem)      to rounding
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.prefix_tree import Tree

STEM, BRANCH = 5, 3
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Relative to the largest number; for narrower types 0.05."""


def attention_mask(module: Any, mask: Tensor) -> Tensor:
    """A mask of who attends to whom as the module wants it: boolean for SDPA, else additive."""
    if module.config._attn_implementation == "sdpa":
        return mask
    return torch.zeros_like(mask, dtype=module.dtype).masked_fill_(
        ~mask, torch.finfo(module.dtype).min
    )


@torch.no_grad()
def computes_trees(module: Any) -> bool:
    """Try it on twelve tokens, with the weights as they are."""
    # a window over places in the sequence, which are not those in an episode
    if "local" in getattr(module.config, "attention_layers", ()):
        return False
    device, size = next(module.parameters()).device, module.config.get_text_config().vocab_size
    stem, first, second, other = (
        torch.arange(STEM + 3 * BRANCH, device=device)
        .remainder(size)
        .split([STEM, BRANCH, BRANCH, BRANCH])
    )
    width = STEM + 2 * BRANCH
    ids_L, ends = torch.arange(width), (STEM, STEM + BRANCH, width)
    segments = ((0, ends[0], -1), (ends[0], ends[1], STEM - 1), (ends[1], ends[2], STEM - 1))
    empty = ids_L[:0].numpy()
    mask = torch.from_numpy(Tree(ids_L.numpy(), empty, segments, empty, empty).mask(width))
    depth = torch.cat([ids_L[: STEM + BRANCH], ids_L[STEM : STEM + BRANCH]]).to(device)

    def shared(sibling: Any) -> Any:
        return module.base_model(
            input_ids=torch.cat([stem, sibling, second])[None], position_ids=depth[None],
            attention_mask=attention_mask(module, mask.to(device)[None, None]), use_cache=False,
        ).last_hidden_state[0, -BRANCH:]  # fmt: skip

    # what a model raises for a mask that it does not take is of any kind
    try:
        found = [shared(first), shared(other)]
    except Exception:
        return False
    whole = module.base_model(input_ids=torch.cat([stem, second])[None], use_cache=False)
    alone = whole.last_hidden_state[0, -BRANCH:]
    gap = max((hidden - alone).abs().max() for hidden in found)
    return bool(gap <= ROUNDING.get(alone.dtype, 0.05) * alone.abs().max())
