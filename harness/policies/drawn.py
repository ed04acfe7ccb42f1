"""Weights that are drawn, the same on every machine.

Bits come from Philox under a key hashed from a path, and become floats by one exact multiplication.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from harness.identity import canonical


def uniform(domain: str, path: list[Any], shape: tuple[int, ...], bound: float) -> np.ndarray:
    """float32, uniform on (-bound, bound); a function of domain and path alone."""
    key = hashlib.sha256(f"harness/{domain}/v1\0".encode() + canonical(path)).digest()
    raw = np.random.Philox(key=int.from_bytes(key[:16], "little")).random_raw(int(np.prod(shape)))
    # 24 bits, centred: a multiple of 2^-24 that float32 holds exactly
    centred = (raw >> np.uint64(40)).astype(np.int64) * 2 - (2**24 - 1)
    unit = centred.astype(np.float64) * 2.0**-24
    return (unit * bound).astype(np.float32).reshape(shape)
