"""Decoding without a cache: for models that keep something else than keys and values, or take no
mask of who attends to whom. Every step computes whole rows again, padded at the right, where a
causal model does not see it. Axes: B rows, Q tokens of the longest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.policies.resident import Session


class Uncached(Session):
    """Rows that decode together, of which only the tokens are kept."""

    def _begin(self, prompts: Sequence[Sequence[int]]) -> None:
        self.tokens = [list(prompt) for prompt in prompts]
        size = self.inference.prefill_rows
        parts = [self._last(self.tokens[i : i + size]) for i in range(0, len(prompts), size)]
        self.logits_BV = torch.cat([logits for logits, _ in parts])
        self.values_B = None if self.value_head is None else torch.cat([v for _, v in parts])

    def select(self, rows: Sequence[int]) -> None:
        index = torch.as_tensor(rows, device=self.device)
        self.tokens = [list(self.tokens[row]) for row in rows]
        self.logits_BV = self.logits_BV.index_select(0, index)
        self.values_B = None if self.values_B is None else self.values_B[index]

    def feed(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        for row, new in zip(self.tokens, tokens, strict=True):
            row += new
        self.logits_BV, values_B = self._last(self.tokens)
        self.values_B = None if self.value_head is None else values_B
        return self.logits_BV

    @torch.no_grad()
    def _last(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Logits [B, V] after the last token of each row, and values [B]: of no meaning where the
        model has no critic."""
        width = max(map(len, rows))
        ids_BQ = torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows])
        last_B = torch.tensor([len(row) - 1 for row in rows], device=self.device)
        with self.whole():
            out = self.module.base_model(input_ids=ids_BQ.to(self.device), use_cache=False)
            hidden_BH = out.last_hidden_state[torch.arange(len(rows)), last_B]
            logits_BV = self._logits(hidden_BH)
            if self.value_head is None:
                return logits_BV, logits_BV.new_empty(0)
            return logits_BV, self.value_head(hidden_BH)[:, 0].float()
