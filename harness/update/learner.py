"""The module that DeepSpeed trains: a causal language model and the loss on its action tokens.

Its forward runs the body of the model over prefix trees, or over plain episodes where the model
computes no trees, takes the hidden states that predict
action tokens, and evaluates the chunked LM head on them: logits of more than one chunk never exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from harness.kernels.linear_policy import linear_logprobs, linear_policy, linear_policy_given
from harness.prefix_tree import Batch, attention_mask
from harness.update.value import ROWS, ValueLoss

STATISTICS = ("logp_T", "clipped_T", "ratio_T")


class Learner(nn.Module):
    """A causal language model under a policy loss."""

    def __init__(self, module: Any, head: Any) -> None:
        super().__init__()
        self.module = module
        self.head = head
        """Where its logits come from: `softcap` and `scale` of the model, bias."""
        self.trees = True
        """Whether the module takes masks and positions; else a batch's trees are single paths."""

    def forward(
        self, batch: Batch, rows: Mapping[str, Tensor], *, mode: str, objective: Any = None,
        temperature: float = 1.0, value: ValueLoss | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
        """loss (0 when scoring) and statistics of the batch's rows, in their order.

        mode: "policy" evaluates the objective, "given" takes dlogp_T, "score" has no gradient.
        value: the critic's loss, which is added, and told as `value_loss`.
        """
        layer = self.module.get_output_embeddings()
        device = layer.weight.device
        attention = self.module.config._attn_implementation
        put = lambda array: torch.as_tensor(array, device=device)  # noqa: E731
        tree = {}
        if self.trees:
            tree["position_ids"] = put(batch.position_KL)
            tree["attention_mask"] = attention_mask(batch, attention, self.module.dtype, device)
        out = self.module.base_model(input_ids=put(batch.token_ids_KL), use_cache=False, **tree)
        hidden = out.last_hidden_state
        hidden_RH = hidden.reshape(-1, hidden.shape[-1]).index_select(0, put(batch.node_R))
        loss, stats = self._policy(hidden_RH, layer, rows, mode, objective, temperature)
        if value is not None:
            critic = value(self.module.value_head, hidden_RH, rows)
            loss, stats = loss + critic, {**stats, "value_loss": critic.detach()}
        return loss, stats

    def _policy(
        self, hidden_RH: Tensor, layer: Any, rows: Mapping[str, Tensor], mode: str, objective: Any,
        temperature: float,
    ) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
        """The LM head's part."""
        if self.head.scale != 1.0:
            hidden_RH = hidden_RH * self.head.scale
        head = {
            "bias": getattr(layer, "bias", None), "softcap": self.head.softcap,
            "temperature": temperature, "threshold_T": rows.get("threshold_T"),
        }  # fmt: skip
        targets_R = rows["targets_T"]
        if mode == "score":
            logp, entropy = linear_logprobs(
                hidden_RH, layer.weight, targets_R, entropy=True, **head
            )
            return hidden_RH.new_zeros(()), {"logp_T": logp, "entropy_T": entropy}
        if mode == "given":
            return linear_policy_given(
                hidden_RH, layer.weight, targets_R, dlogp_T=rows["dlogp_T"],
                dentropy_T=rows.get("dentropy_T"), **head,
            )  # fmt: skip
        known: dict[str, Any] = {
            name: row
            for name, row in rows.items()
            if name not in ("targets_T", "threshold_T", *ROWS)
        }
        return linear_policy(
            hidden_RH, layer.weight, targets_R, objective=objective, stats=STATISTICS,
            stats_rows_T=torch.zeros_like(targets_R, dtype=torch.bool), **known, **head,
        )  # fmt: skip
