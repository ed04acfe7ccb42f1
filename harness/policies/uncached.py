"""Decoding without a cache: for models that keep something else than keys and values, or take no
mask of who attends to whom. Every step computes whole rows again, padded at the right, where a
causal model does not see it. Axes: A rows that go on, Q tokens of the longest.
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
        self.logits_AV = torch.cat([logits for logits, _ in parts])
        self.values_A = None if self.value_head is None else torch.cat([v for _, v in parts])

    def _take(self, places: Sequence[int]) -> None:
        self.tokens = [list(self.tokens[place]) for place in places]

    def feed(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        going = self._going(tokens)
        for place, row in enumerate(going):
            self.tokens[place] += tokens[row]
        self.logits_AV, values_A = self._last(self.tokens[: len(going)])
        self.values_A = None if self.value_head is None else values_A
        return self.logits_AV

    @torch.no_grad()
    def _last(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Logits [A, V] after the last token of each row, and values [A]: of no meaning where the
        model has no critic."""
        width = max(map(len, rows))
        ids_AQ = torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows])
        last_A = torch.tensor([len(row) - 1 for row in rows], device=self.device)
        with self.whole():
            out = self.module.base_model(input_ids=ids_AQ.to(self.device), use_cache=False)
            hidden_AH = out.last_hidden_state[torch.arange(len(rows)), last_A]
            logits_AV = self._logits(hidden_AH)
            if self.value_head is None:
                return logits_AV, logits_AV.new_empty(0)
            return logits_AV, self.value_head(hidden_AH)[:, 0].float()
