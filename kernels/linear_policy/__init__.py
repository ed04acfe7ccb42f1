"""The LM head with its loss: hidden states and weights to loss, statistics and gradients.

Never more than one chunk of logits exists, forward or backward. `linear_policy` evaluates an
objective, `linear_policy_given` takes the derivatives from outside, `linear_logprobs` only scores.
The device of the hidden states chooses the row kernel. `reference.linear_policy` is the definition.
"""

from ..policy_rows import Objective, Outcome
from .fused import linear_logprobs, linear_policy, linear_policy_given

__all__ = ["Objective", "Outcome", "linear_logprobs", "linear_policy", "linear_policy_given"]
