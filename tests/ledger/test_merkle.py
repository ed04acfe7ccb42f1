import hashlib

import pytest

from harness.ledger import merkle

SEALS = ["sha256:" + hashlib.sha256(bytes([i])).hexdigest() for i in range(40)]
LEAVES = [merkle.leaf(seal) for seal in SEALS]


def independent_root(seals):
    """The root by levels: pair neighbours, carry an odd one up. Not how RFC 9162 spells it."""
    level = [hashlib.sha256(b"\x00" + bytes.fromhex(seal.split(":")[1])).digest() for seal in seals]
    if not level:
        return "sha256:" + hashlib.sha256(b"").hexdigest()
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [
            hashlib.sha256(b"\x01" + b"".join(pair)).digest() if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    return "sha256:" + level[0].hex()


def independent_path(seals, index):
    """Siblings by levels; a node without one is carried up."""
    level = [hashlib.sha256(b"\x00" + bytes.fromhex(seal.split(":")[1])).digest() for seal in seals]
    path = []
    while len(level) > 1:
        beside = index ^ 1
        if beside < len(level):
            path.append(level[beside])
        level = [
            hashlib.sha256(b"\x01" + b"".join(level[i : i + 2])).digest()
            if i + 1 < len(level) else level[i]
            for i in range(0, len(level), 2)
        ]  # fmt: skip
        index //= 2
    return path


@pytest.mark.parametrize("size", range(34))
def test_a_root_is_that_of_another_implementation(size):
    frontier = ()
    for seal in SEALS[:size]:
        frontier = merkle.grown(frontier, seal)
    assert merkle.root_of(frontier) == independent_root(SEALS[:size])
    assert len(frontier) == size.bit_count()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 33])
def test_every_leaf_is_proven_at_its_place_and_nowhere_else(size):
    root = independent_root(SEALS[:size])
    for index in range(size):
        path = merkle.inclusion(LEAVES[:size], index)
        assert path == independent_path(SEALS[:size], index)
        assert merkle.included(SEALS[index], index, size, path, root)
        assert not merkle.included(SEALS[index + 1], index, size, path, root)
        assert not merkle.included(SEALS[index], index, size, [*path, b"x" * 32], root)
        assert not merkle.included(SEALS[index], size, size, path, root)
        for k in range(len(path)):
            wrong = [*path[:k], b"\0" * 32, *path[k + 1 :]]
            assert not merkle.included(SEALS[index], index, size, wrong, root)
            assert not merkle.included(SEALS[index], index, size, path[:k] + path[k + 1 :], root)


def test_every_older_tree_is_proven_to_be_within_every_newer_one():
    roots = [independent_root(SEALS[:size]) for size in range(20)]
    for new in range(1, 20):
        for old in range(1, new + 1):
            path = merkle.consistency(LEAVES[:new], old)
            assert merkle.consistent(old, roots[old], new, roots[new], path)
            other = "sha256:" + "0" * 64
            assert not merkle.consistent(old, other, new, roots[new], path)
            assert not merkle.consistent(old, roots[old], new, other, path)
            for k in range(len(path)):
                cut = path[:k] + path[k + 1 :]
                assert not merkle.consistent(old, roots[old], new, roots[new], cut)
    assert not merkle.consistent(0, roots[0], 3, roots[3], [])


def test_the_root_of_nothing_and_of_two_are_those_of_the_text():
    assert merkle.root_of(()) == (
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    two = hashlib.sha256(b"\x01" + LEAVES[0] + LEAVES[1]).digest()
    assert merkle.root(LEAVES[:2]) == two
