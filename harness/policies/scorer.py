"""A frozen model that scores tokens: log-probabilities of a reference policy.

Episodes of a group are computed as one prefix tree, without gradient, and logits of more than one
chunk never exist. The module is a cache of its model: it is built when it is first used, shares the
model's memory, and is never trained.

Axes: T tokens of all episodes packed, R rows (action tokens) of a batch, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.policies.trees import attention_mask, computes_trees
from harness.prefix_tree import Batch, batches, forest


@dataclass(frozen=True)
class Scorer:
    """Scores of one model."""

    model: Any
    matrices: int = 0
    """Elements of the matrices that a token is multiplied with, for who counts FLOPs."""
    width: int = 0
    """layers·heads·head_dim, likewise."""
    threads: int = 1
    attention: str = "sdpa"

    @property
    def id(self) -> str:
        """Of the model."""
        return str(self.model.id)

    @cached_property
    def module(self) -> Any:
        import torch

        from harness.policies.model import build_module

        module = build_module(self.model, attention=self.attention)
        return module.to("cuda" if torch.cuda.is_available() else "cpu")

    @cached_property
    def trees(self) -> bool:
        """Whether the model computes prefix trees; if not, each episode is computed alone."""
        return "flash" not in self.attention and computes_trees(self.module)

    def score(
        self, token_ids_T: np.ndarray, offsets: np.ndarray, is_action_T: np.ndarray,
        threshold_T: np.ndarray | None, sampling: Mapping[str, Any], attempts: int, *,
        micro_tokens: int, share: Callable[[int], range] = range,
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:  # fmt: skip
        """logprobs_T float32 in the tempered, truncated family, 0 where not an action; which of
        them were computed; and the work of all: `tokens` that are run, shared prefixes once, and
        how many tokens they `attended` to.

        micro_tokens: padded tokens that are forwarded together; share: which of the batches.
        """
        import torch

        torch.set_num_threads(self.threads)
        logprobs_T = np.zeros(len(token_ids_T), np.float32)
        mine_T = np.zeros(len(token_ids_T), bool)
        trees = forest(token_ids_T, is_action_T, offsets, attempts, share=self.trees)
        todo = batches(trees, micro_tokens)
        with torch.no_grad():
            for i in share(len(todo)):
                row_T = todo[i].row_T
                targets_R = token_ids_T[row_T].astype(np.int64)
                cut_R = None if threshold_T is None else threshold_T[row_T]
                logprobs_T[row_T] = self._rows(todo[i], targets_R, cut_R, sampling)
                mine_T[row_T] = True
        work = {
            "tokens": sum(len(tree.token_ids_L) for tree in trees),
            "attended": sum(int((tree.depth_L + 1).sum()) for tree in trees),
        }
        return logprobs_T, mine_T, work

    def _rows(
        self, batch: Batch, targets_R: np.ndarray, cut_R: np.ndarray | None,
        sampling: Mapping[str, Any],
    ) -> np.ndarray:  # fmt: skip
        import torch

        from harness.kernels.linear_policy import linear_logprobs
        from harness.policies.resident import head_of

        head = head_of(self.module)
        put = lambda array: torch.as_tensor(array, device=head.weight.device)  # noqa: E731
        tree = {
            "position_ids": put(batch.position_KL),
            "attention_mask": attention_mask(self.module, put(batch.mask_KLL)[:, None]),
        }
        hidden = self.module.base_model(
            input_ids=put(batch.token_ids_KL), use_cache=False, **(tree if self.trees else {})
        ).last_hidden_state
        hidden_RH = hidden.reshape(-1, hidden.shape[-1]).index_select(0, put(batch.node_R))
        if head.scale != 1.0:
            hidden_RH = hidden_RH * head.scale
        logp: Any = linear_logprobs(
            hidden_RH, head.weight, put(targets_R), bias=head.bias, softcap=head.softcap,
            temperature=float(sampling["temperature"]),
            threshold_T=None if cut_R is None else put(cut_R),
        )  # fmt: skip
        return np.asarray(logp.float().cpu())
