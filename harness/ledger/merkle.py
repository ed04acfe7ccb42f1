"""Merkle trees after RFC 9162 over the seals of a branch, from the genesis to a record.

    MTH({})     = H()                     leaf d: H(0x00 d), where d are the 32 bytes of a seal
    MTH(D[0:n]) = H(0x01 MTH(D[0:k]) MTH(D[k:n])),        k the largest power of two below n

An inclusion proof shows that a seal is at its place under a root; a consistency proof shows that
what was under an older root is still there, unchanged and in order, under a newer one. Both are
logarithmic in the number of records, and whoever checks one needs no ledger.

Source: RFC 9162, sections 2.1.1 to 2.1.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

PREFIX = "sha256:"

Frontier = tuple[tuple[int, bytes], ...]
"""The roots of the complete subtrees that a growing tree falls into, the largest first, with their
sizes: all that is needed to append to it."""


def leaf(seal: str) -> bytes:
    """The hash of a leaf. Raises ValueError where the seal is not 64 hex digits."""
    return hashlib.sha256(b"\0" + unhex(seal.removeprefix(PREFIX))).digest()


def unhex(digits: str) -> bytes:
    """The 32 bytes of a digest."""
    data = bytes.fromhex(digits)
    if len(data) != 32 or len(digits) != 64:
        raise ValueError(f"{digits!r} is no digest; it is 64 hex digits")
    return data


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def grown(frontier: Frontier, seal: str) -> Frontier:
    """The frontier after one more leaf."""
    size, digest = 1, leaf(seal)
    while frontier and frontier[-1][0] == size:
        digest = node(frontier[-1][1], digest)
        frontier, size = frontier[:-1], 2 * size
    return (*frontier, (size, digest))


def root_of(frontier: Frontier) -> str:
    """The root of the tree that a frontier stands for."""
    if not frontier:
        return PREFIX + hashlib.sha256().hexdigest()
    digest = frontier[-1][1]
    for _, left in reversed(frontier[:-1]):
        digest = node(left, digest)
    return PREFIX + digest.hex()


def root(leaves: Sequence[bytes]) -> bytes:
    """The root over hashed leaves."""
    frontier: list[tuple[int, bytes]] = []
    for digest in leaves:
        size = 1
        while frontier and frontier[-1][0] == size:
            digest, size = node(frontier.pop()[1], digest), 2 * size
        frontier.append((size, digest))
    return bytes.fromhex(root_of(tuple(frontier)).removeprefix(PREFIX))


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """PATH(index, leaves): the hashes beside the way from a leaf to the root, the lowest first."""
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if index < k:
        return [*inclusion(leaves[:k], index), root(leaves[k:])]
    return [*inclusion(leaves[k:], index - k), root(leaves[:k])]


def consistency(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """PROOF(old, leaves): what leads from the root over the first `old` leaves to that over all."""
    return [] if old == len(leaves) else _subproof(old, leaves, True)


def _subproof(old: int, leaves: Sequence[bytes], whole: bool) -> list[bytes]:
    if old == len(leaves):
        return [] if whole else [root(leaves)]
    k = _split(len(leaves))
    if old <= k:
        return [*_subproof(old, leaves[:k], whole), root(leaves[k:])]
    return [*_subproof(old - k, leaves[k:], False), root(leaves[:k])]


def _split(size: int) -> int:
    """The largest power of two below a size."""
    return 1 << (size - 1).bit_length() - 1


def included(seal: str, index: int, size: int, path: Sequence[bytes], expected: str) -> bool:
    """Whether a path leads from a leaf to a root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    low, last, digest = index, size - 1, leaf(seal)
    for beside in path:
        if last == 0:
            return False
        if low & 1 or low == last:
            digest = node(beside, digest)
            while not low & 1 and low:
                low, last = low >> 1, last >> 1
        else:
            digest = node(digest, beside)
        low, last = low >> 1, last >> 1
    return last == 0 and PREFIX + digest.hex() == expected


def consistent(old: int, old_root: str, new: int, new_root: str, path: Sequence[bytes]) -> bool:
    """Whether a path leads from an older root to a newer one (RFC 9162, 2.1.4.2)."""
    if not 0 < old <= new:
        return False
    if old == new:
        return not path and old_root == new_root
    steps = list(path)
    if old & (old - 1) == 0:
        steps.insert(0, bytes.fromhex(old_root.removeprefix(PREFIX)))
    if not steps:
        return False
    low, last = old - 1, new - 1
    while low & 1:
        low, last = low >> 1, last >> 1
    first = second = steps[0]
    for beside in steps[1:]:
        if last == 0:
            return False
        if low & 1 or low == last:
            first, second = node(beside, first), node(beside, second)
            while not low & 1 and low:
                low, last = low >> 1, last >> 1
        else:
            second = node(second, beside)
        low, last = low >> 1, last >> 1
    return last == 0 and (PREFIX + first.hex(), PREFIX + second.hex()) == (old_root, new_root)
