import numpy as np
import pytest
import torch
from scipy import stats

from harness.kernels.philox_sample import philox4x32 as torch_philox
from harness.seeds.philox import integers, permutation, philox4x32, uniforms, words

# the known answers of Random123, kat_vectors: philox4x32 10
GOLDEN = [
    ("00000000" * 4, "00000000" * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff" * 4, "ffffffff" * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a8885a308d313198a2e03707344", "a4093822299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def split(text: str) -> list[int]:
    return [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]


@pytest.mark.parametrize(("counter", "key", "expected"), GOLDEN)
def test_the_published_words(counter, key, expected):
    low, high = split(key)
    found = philox4x32(np.array(split(counter), np.uint64), (low, high))
    assert " ".join(f"{word:08x}" for word in found) == expected


def test_numpy_and_torch_have_equal_bits():
    counter = np.random.default_rng(0).integers(0, 2**32, (500, 4), np.uint64)
    for key in ((0, 0), (0xFFFFFFFF, 1), (0xA4093822, 0x299F31D0)):
        ours = philox4x32(counter, key)
        columns = tuple(torch.from_numpy(counter[:, i].astype(np.int64)) for i in range(4))
        theirs = torch_philox(columns, tuple(torch.tensor([k]) for k in key))
        assert np.array_equal(ours, torch.stack(theirs, -1).numpy().astype(np.uint32))


def test_words_are_those_of_their_counters():
    key = 0x299F31D0A4093822
    found = words(key, 10, stream=3)
    assert found.shape == (10,)
    block = philox4x32(np.array([1, 0, 3, 0], np.uint64), (0xA4093822, 0x299F31D0))
    assert np.array_equal(found[4:8], block)
    assert np.array_equal(words(key, 6, stream=3), found[:6])
    assert not np.array_equal(words(key, 10), found)


def test_uniforms_lie_strictly_between_zero_and_one():
    found = uniforms(7, 100_000)
    assert 0 < found.min() < found.max() < 1
    assert stats.kstest(found, "uniform").pvalue > 0.001


def test_the_extreme_uniforms(monkeypatch):
    from harness.seeds import philox

    for word, expected in ((0, 2.0**-53), (0xFFFFFFFF, 1 - 2.0**-53)):
        monkeypatch.setattr(philox, "words", lambda *a, w=word, **k: np.full(2, w, np.uint32))
        assert 0 < philox.uniforms(0, 1)[0] < 1
        assert philox.uniforms(0, 1)[0] == expected


def test_integers_lie_below_their_bounds_and_are_uniform():
    found = integers(11, np.full(60_000, 6))
    assert (found.min(), found.max()) == (0, 5)
    assert stats.chisquare(np.bincount(found, minlength=6)).pvalue > 0.001
    bounds = [1, 2, 10**9, 2**32]
    assert all(0 <= x < b for x, b in zip(integers(5, bounds), bounds, strict=True))


def test_integers_are_the_high_part_of_the_product():
    found = integers(3, [2**32, 7])
    w = [int(x) for x in words(3, 4)]
    assert list(found) == [
        2**32 * (w[0] << 32 | w[1]) >> 64,
        7 * (w[2] << 32 | w[3]) >> 64,
    ]


def test_a_permutation_is_one_and_uniform():
    assert sorted(permutation(1, 100)) == list(range(100))
    firsts = [tuple(permutation(key, 3)) for key in range(3000)]
    counts = [firsts.count(order) for order in set(firsts)]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.001


def test_a_bound_beyond_its_range_is_an_error_of_ours():
    for bound in (0, 2**32 + 1):
        with pytest.raises(AssertionError, match="bounds are 1 to"):
            integers(1, [bound])
