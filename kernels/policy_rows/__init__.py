"""Rows of logits to log-probability, entropy, objective and, in place, the gradient of the logits.

`policy_rows_` chooses the implementation by the device of the logits. `reference.policy_rows` is
the
definition; `Objective`, `Rows` and `Outcome` say what a row's loss is and what it reads.
"""

from .cpu import REPORT
from .dispatch import policy_rows_
from .outcome import Outcome
from .reference import Objective, Rows, Terms, distribution, policy_rows, token_loss

__all__ = [
    "REPORT",
    "Objective",
    "Outcome",
    "Rows",
    "Terms",
    "distribution",
    "policy_rows",
    "policy_rows_",
    "token_loss",
]
