"""Episodes of a group as one prefix tree: shared prefixes are computed once, forward and backward.

A tree is laid out as one sequence. An episode's tokens that follow the longest prefix it shares
with those before it form a segment; the segment hangs on the node where it leaves. Then

    token i attends to j   iff   j is i or an ancestor of i,        position(i) = depth(i)

which is exactly what each episode alone would compute, so gradients are equal to rounding.
Axes: L nodes of a tree, R rows (action tokens), K trees of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tree:
    """One tree: its nodes, and where each action token of its episodes is predicted from."""

    token_ids_L: np.ndarray
    depth_L: np.ndarray
    segments: tuple[tuple[int, int, int], ...]
    """(start, end, parent node or -1) of each segment, parents first."""
    row_T: np.ndarray
    """Indices of action tokens in the packed episodes."""
    node_R: np.ndarray
    """The node whose hidden state predicts that token."""

    def visits(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """When a walk in depth enters each node, and the last node that it enters below it.

            j is i or an ancestor of i   iff   enter_j <= enter_i <= last_j

        int64 [width] each; padding is a root of its own.
        """
        below_L = np.zeros(width, np.int64)
        """Nodes of the segments that hang on a node."""
        for start, end, parent in reversed(self.segments):
            if parent >= 0:
                below_L[parent] += int((1 + below_L[start:end]).sum())
        enter_L, last_L = np.arange(width), np.arange(width)
        taken_L = np.zeros(width, np.int64)
        clock = 0
        for start, end, parent in self.segments:
            steps = 1 + below_L[start:end]
            size = int(steps.sum())
            first = clock
            if parent >= 0:
                first = int(enter_L[parent] + 1 + taken_L[parent])
                taken_L[parent] += size
            else:
                clock += size
            enter_L[start:end] = first + np.cumsum(steps) - steps
            last_L[start:end] = first + size - 1
        return enter_L, last_L

    def mask(self, width: int) -> np.ndarray:
        """Who attends to whom: bool [width, width]; padding attends to itself."""
        mask = np.eye(width, dtype=bool)
        for start, end, parent in self.segments:
            if parent >= 0:
                mask[start:end, : parent + 1] |= mask[parent, : parent + 1]
            mask[start:end, start:end] |= np.tri(end - start, dtype=bool)
        return mask


def grow(token_ids_T: np.ndarray, live_T: np.ndarray, spans: Sequence[tuple[int, int]]) -> Tree:
    """The tree of some episodes, given as spans of the packed tokens.

    live_T marks the action tokens that are wanted as rows. An episode is cut after its last one:
    what follows teaches nothing.
    """
    paths: list[np.ndarray] = []
    nodes: list[np.ndarray] = []
    segments: list[tuple[int, int, int]] = []
    tokens: list[np.ndarray] = []
    depths: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    sources: list[np.ndarray] = []
    size = 0
    for start, end in spans:
        wanted = np.flatnonzero(live_T[start:end])
        wanted = wanted[wanted > 0]
        if not len(wanted):
            continue
        # the last wanted token is predicted, never attended from
        ids = token_ids_T[start : start + wanted[-1]]
        shared, at = 0, np.empty(0, np.int64)
        for path, node in zip(paths, nodes, strict=True):
            common = _common(path, ids)
            if common > shared:
                shared, at = common, node[:common]
        fresh = np.arange(size, size + len(ids) - shared)
        if len(fresh):
            segments.append((size, size + len(fresh), int(at[-1]) if shared else -1))
            tokens.append(ids[shared:])
            depths.append(np.arange(shared, len(ids)))
            size += len(fresh)
        node = np.concatenate([at, fresh])
        paths.append(ids)
        nodes.append(node)
        rows.append(start + wanted)
        sources.append(node[wanted - 1])
    join = lambda parts: np.concatenate(parts) if parts else np.empty(0, np.int64)  # noqa: E731
    return Tree(
        join(tokens).astype(np.int64), join(depths), tuple(segments), join(rows), join(sources)
    )


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    different = a[:n] != b[:n]
    return int(np.argmax(different)) if different.any() else n


def forest(
    token_ids_T: np.ndarray, live_T: np.ndarray, offsets: np.ndarray, attempts: int, *, share: bool
) -> list[Tree]:
    """A tree for each group, or one for each episode where prefixes are not shared.

    Episodes that start with different prompts share nothing but a tree: their segments have no
    parent. Groups without a wanted row have no tree.
    """
    spans = [(int(a), int(b)) for a, b in pairwise(offsets)]
    size = max(attempts, 1) if share else 1
    groups = [spans[i : i + size] for i in range(0, len(spans), size)]
    trees = [grow(token_ids_T, live_T, group) for group in groups]
    return [tree for tree in trees if len(tree.row_T)]


@dataclass(frozen=True)
class Batch:
    """Trees that are computed together, padded to the widest."""

    token_ids_KL: np.ndarray
    position_KL: np.ndarray
    mask_KLL: np.ndarray
    visits_2KL: np.ndarray
    row_T: np.ndarray
    node_R: np.ndarray
    """Into the flattened [K·L] hidden states."""

    @property
    def tokens(self) -> int:
        return int(self.token_ids_KL.size)


def collate(trees: Sequence[Tree]) -> Batch:
    width = max(len(tree.token_ids_L) for tree in trees)
    pad = lambda x: np.pad(x, (0, width - len(x)))  # noqa: E731
    return Batch(
        np.stack([pad(tree.token_ids_L) for tree in trees]),
        np.stack([pad(tree.depth_L) for tree in trees]),
        np.stack([tree.mask(width) for tree in trees]),
        np.stack([tree.visits(width) for tree in trees], axis=1),
        np.concatenate([tree.row_T for tree in trees]),
        np.concatenate([tree.node_R + k * width for k, tree in enumerate(trees)]),
    )


def attention_mask(batch: Batch, implementation: str, dtype: Any, device: Any) -> Any:
    """Who attends to whom, as a module of transformers wants it.

    A block mask for FlexAttention, which skips blocks that nothing sees; else [K, 1, L, L]: boolean
    for SDPA, additive for what is left.
    """
    import torch

    if implementation == "flex_attention":
        from torch.nn.attention.flex_attention import create_block_mask

        enter_KL, last_KL = torch.as_tensor(batch.visits_2KL, device=device)

        def sees(k: Any, head: Any, i: Any, j: Any) -> Any:
            at = enter_KL[k, i]
            return (enter_KL[k, j] <= at) & (at <= last_KL[k, j])

        trees, width = batch.token_ids_KL.shape
        return create_block_mask(sees, trees, None, width, width, device=device)
    mask = torch.as_tensor(batch.mask_KLL, device=device)[:, None]
    if implementation == "sdpa":
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


def batches(trees: Sequence[Tree], budget: int) -> list[Batch]:
    """Trees in their order, together as fit `budget` padded tokens; one alone always fits."""
    groups: list[list[Tree]] = []
    width = 0
    for tree in trees:
        wider = max(width, len(tree.token_ids_L))
        if groups and wider * (len(groups[-1]) + 1) <= budget:
            groups[-1].append(tree)
            width = wider
        else:
            groups.append([tree])
            width = len(tree.token_ids_L)
    return [collate(group) for group in groups]


def share(trees: Sequence[Tree], rank: int, size: int) -> list[Tree]:
    """The trees of one of `size` ranks: runs of whole trees, of nearly equal numbers of tokens."""
    total = sum(len(tree.token_ids_L) for tree in trees)
    mine, before = [], 0
    for tree in trees:
        tokens = len(tree.token_ids_L)
        # where the middle of the tree lies among all tokens
        if (2 * before + tokens) * size // max(2 * total, 1) == rank:
            mine.append(tree)
        before += tokens
    return mine


def idle(row: int) -> Batch:
    """One token that predicts a row: for a rank that has nothing to do while others compute."""
    one = np.zeros(1, np.int64)
    tree = Tree(one, one, ((0, 1, -1),), np.array([row], np.int64), one)
    return collate([tree])
