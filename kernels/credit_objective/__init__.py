"""Credit and objective of packed trajectories, from known log-probabilities.

`credit_objective` chooses the implementation by the device of its tensors. `reference.py` is the
definition and the CPU path, `fused.py` the Triton kernel: one program a trajectory.
"""

from .dispatch import credit_objective
from .reference import SUMS, Credit, Evaluation, Packed, reverse_scan

__all__ = ["SUMS", "Credit", "Evaluation", "Packed", "credit_objective", "reverse_scan"]
