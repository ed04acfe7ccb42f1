"""Sampling of one token a row by a counter-based generator.

`sample` chooses the implementation by the device of the logits: CUDA tensors run the Triton kernel
of `fused.py`, CPU tensors the torch path of `reference.py`. `philox4x32` and `uniforms` give the
integers and the numbers in (0, 1] behind it, equal bit for bit on both.
"""

from .dispatch import sample
from .reference import philox4x32, uniforms

__all__ = ["philox4x32", "sample", "uniforms"]
