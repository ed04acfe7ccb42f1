"""The sampling kernel against its definition: equal integers, equal tokens, equal kept sets."""

from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from harness.kernels.philox_sample import fused, philox4x32, reference

ROWS = 9
TRUNCATIONS: list[dict[str, Any]] = [
    {},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.05},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.01},
]


@pytest.fixture(autouse=True)
def _hidden_checks() -> Iterator[None]:
    """Without the checks of overflow, which cost a bisection most of its time."""
    with numpy.errstate(all="ignore"):
        yield


@triton.jit
def words_kernel(seeds, offsets, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Triton's own generator."""
    lane = tl.arange(0, WIDTH)
    words = tl.randint4x(tl.load(seeds), tl.load(offsets + lane))
    for index in tl.static_range(4):
        tl.store(out + index * WIDTH + lane, words[index].to(tl.int32, bitcast=True))


def test_integers_are_those_of_triton() -> None:
    offsets = torch.tensor([0, 1, 2, 77, 2**31 - 1, 5, 6, 7], dtype=torch.int32)
    for seed in (0, 1, 0x1234567890ABCDEF, -1, -(2**63)):
        seeds = torch.tensor([seed])
        out = torch.empty(4, 8, dtype=torch.int32)
        words_kernel[(1,)](seeds, offsets, out, WIDTH=8)
        zero = torch.zeros(8, dtype=torch.int64)
        key = seeds.expand(8)
        words = philox4x32((offsets.long(), zero, zero, zero), (key, key >> 32))
        assert torch.equal(torch.stack(words), out.long() & 0xFFFFFFFF)


def awkward(vocabulary: int) -> Tensor:
    draw = torch.Generator().manual_seed(vocabulary)
    z = 3 * torch.randn(ROWS, vocabulary, generator=draw)
    z[1] += 1e4
    z[2] -= 500
    z[3, -1] = 60
    z[4] = -torch.inf
    z[4, -1] = 2.0
    z[5] = 1.5
    z[6, ::3] = -torch.inf
    z[7] = -torch.inf
    return z


def arguments() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    key = torch.randint(-(2**63), 2**63 - 1, (ROWS,), generator=draw)
    return key, torch.arange(ROWS) * 1_000_003


@pytest.mark.parametrize("vocabulary", [1, 31, 1500])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_tokens_and_kept_sets_are_the_definitions(
    truncation: dict[str, Any], vocabulary: int
) -> None:
    z, (key, position) = awkward(vocabulary), arguments()
    antithetic = torch.arange(ROWS) % 3 == 0
    settings = {"temperature": 0.7, "entropy": True, "antithetic_B": antithetic} | truncation
    expected = reference.sample(z, key, position, **settings)
    token, logprob, threshold, entropy = fused.sample(z, key, position, **settings)
    assert torch.equal(token, expected[0])
    torch.testing.assert_close(logprob, expected[1], rtol=2e-6, atol=2e-6)
    assert torch.equal(threshold, expected[2])
    assert entropy is not None
    torch.testing.assert_close(entropy, expected[3], rtol=2e-6, atol=2e-6)
    assert token[7] == -1
    assert bool((logprob <= 0).all())


def test_greedy_takes_the_lowest_index() -> None:
    z, (key, position) = awkward(1500), arguments()
    expected = reference.sample(z, key, position, temperature=0.0)
    token, logprob, threshold, entropy = fused.sample(z, key, position, temperature=0.0)
    assert torch.equal(token, expected[0])
    assert torch.equal(logprob, expected[1])
    assert torch.equal(threshold, expected[2])
    assert entropy is None
    assert token[5] == 0


def test_a_row_depends_on_nothing_beside_it() -> None:
    z, (key, position) = awkward(1500), arguments()
    settings: dict[str, Any] = {"temperature": 1.3, "min_p": 0.01}
    whole = fused.sample(z, key, position, **settings)
    wide = torch.full((ROWS, 1510), float("nan"))
    wide[:, 4:-6] = z
    order = torch.randperm(ROWS)
    mixed = fused.sample(wide[:, 4:-6][order], key[order], position[order], **settings)
    alone = fused.sample(z[3:4], key[3:4], position[3:4], **settings)
    for index in range(3):
        assert torch.equal(whole[index][order], mixed[index])  # type: ignore[index]
        assert torch.equal(whole[index][3:4], alone[index])  # type: ignore[arg-type, index]


def test_low_precision_and_strided_logits() -> None:
    z, (key, position) = awkward(1500).bfloat16(), arguments()
    settings: dict[str, Any] = {"temperature": 0.9, "min_p": 0.02}
    expected = reference.sample(z, key, position, **settings)
    for logits in (z, z.t().contiguous().t()):
        found = fused.sample(logits, key, position, **settings)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[2], expected[2])


@pytest.mark.usefixtures("overflow_raises")
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("truncation", [TRUNCATIONS[0], TRUNCATIONS[-1]])
def test_addresses_beyond_32_bits(
    truncation: dict[str, Any], temperature: float, far_T: Tensor
) -> None:
    z, (key, position) = awkward(61)[:3].bfloat16(), arguments()
    far = far_T.view(torch.bfloat16).as_strided(z.shape, ((1 << 30) + 16, 1))
    far.copy_(z)
    settings = {"temperature": temperature, "entropy": True} | truncation
    expected = fused.sample(z, key[:3], position[:3], **settings)
    found = fused.sample(far, key[:3], position[:3], **settings)
    for actual, right in zip(found, expected, strict=True):
        assert actual is not None
        assert right is not None
        assert torch.equal(actual, right)
