"""Sampling on the CPU: published integers, the law of the tokens, and what a token depends on."""

from typing import Any

import pytest
import torch
from torch import Tensor

from harness.kernels.philox_sample import philox4x32, sample, uniforms
from harness.kernels.policy_rows import distribution

TRUNCATIONS: list[dict[str, Any]] = [
    {},
    {"top_k": 7},
    {"top_p": 0.8},
    {"min_p": 0.05},
    {"top_k": 9, "top_p": 0.9, "min_p": 0.01},
]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000" * 4, "00000000" * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff" * 4, "ffffffff" * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a8885a308d313198a2e03707344",
            "a4093822299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_published_integers(counter: str, key: str, expected: str) -> None:
    def words(text: str) -> tuple[Tensor, ...]:
        return tuple(torch.tensor([int(text[i : i + 8], 16)]) for i in range(0, len(text), 8))

    found = philox4x32(words(counter), words(key))  # type: ignore[arg-type]
    assert " ".join(f"{int(word):08x}" for word in found) == expected


def test_numbers_lie_above_zero_and_reach_one_at_most() -> None:
    key = torch.full((200_000,), -3)
    first, second = uniforms(key, torch.arange(200_000))
    for u in (first, second):
        assert u.dtype == torch.float32
        assert 0 < float(u.min()) < 1e-4
        assert 1 - 1e-4 < float(u.max()) <= 1
        assert abs(float(u.double().mean()) - 0.5) < 0.002
    assert abs(float(torch.corrcoef(torch.stack((first, second)))[0, 1])) < 0.01


def many(logits: Tensor, count: int, **settings: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples of one distribution under many keys."""
    key = torch.arange(count) * 7919 + (1 << 40)
    position = torch.arange(count) % 17
    token, logprob, threshold, entropy = sample(
        logits.expand(count, -1), key, position, entropy=True, **settings
    )
    assert entropy is not None
    return token, logprob, threshold, entropy


@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_the_law_of_the_tokens(truncation: dict[str, Any]) -> None:
    logits = 2 * torch.randn(1, 40, generator=torch.Generator().manual_seed(0))
    token, logprob, threshold, entropy = many(logits, 20_000, temperature=0.8, **truncation)
    x = logits[0].double() / 0.8
    kept = x - x.max() >= threshold[0]
    p = torch.where(kept, x, -torch.inf).softmax(0)
    counts = torch.bincount(token, minlength=40).double()
    assert bool((counts[~kept] == 0).all())
    squares = ((counts - 20_000 * p).square() / (20_000 * p))[kept].sum()
    freedom = int(kept.sum()) - 1
    assert float(squares) < freedom + 5 * (2 * freedom) ** 0.5 + 1
    torch.testing.assert_close(logprob.double(), p.log()[token], rtol=1e-5, atol=1e-6)
    right = -(p * p.clamp(min=1e-300).log()).sum()
    torch.testing.assert_close(entropy[0].double(), right, rtol=1e-5, atol=1e-6)


def test_kept_sets() -> None:
    p = torch.tensor([[0.4, 0.1, 0.3, 0.1, 0.06, 0.04]])
    for settings, kept in (
        ({"top_k": 1}, 1),
        ({"top_k": 2}, 2),
        # equal values stay together
        ({"top_k": 3}, 4),
        ({"top_p": 0.4 - 1e-4}, 1),
        ({"top_p": 0.69}, 2),
        ({"top_p": 0.75}, 4),
        ({"min_p": 0.2}, 4),
        ({"top_k": 4, "min_p": 0.7}, 2),
        ({"top_k": 6, "top_p": 1.0}, 6),
    ):
        _, _, threshold, _ = many(p.log(), 1, temperature=1.0, **settings)
        distances = (p.log() - p.log().max())[0]
        assert int((distances >= threshold).sum()) == kept, settings
        if kept < 6:
            ordered = distances.sort(descending=True).values
            middle = (ordered[kept - 1] + ordered[kept]) / 2
            torch.testing.assert_close(threshold[0], middle)
        else:
            assert threshold[0] == -torch.inf


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("vocabulary", [50, 5003])
def test_a_token_depends_on_its_key_and_position_alone(
    truncation: dict[str, Any], vocabulary: int
) -> None:
    draw = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(16, vocabulary, generator=draw)
    key = torch.randint(-(2**63), 2**63 - 1, (16,), generator=draw)
    position = torch.arange(16)
    settings: dict[str, Any] = {"temperature": 0.9, "entropy": True} | truncation
    whole = sample(logits, key, position, **settings)
    order = torch.randperm(16, generator=draw)
    mixed = sample(logits[order], key[order], position[order], **settings)
    for part in range(4):
        value, other = whole[part], mixed[part]
        assert value is not None
        assert other is not None
        assert torch.equal(value[order], other)
        for row in range(16):
            only = slice(row, row + 1)
            alone = sample(logits[only], key[only], position[only], **settings)[part]
            assert alone is not None
            assert torch.equal(alone, value[only])


def test_the_trainer_finds_the_same_log_probability_from_the_threshold() -> None:
    logits = 3 * torch.randn(64, 500, generator=torch.Generator().manual_seed(2))
    token, logprob, threshold, _ = sample(
        logits, torch.arange(64), torch.arange(64), temperature=0.7, top_p=0.9
    )
    moved = logits + 1e-5 * torch.randn(64, 500) + 3.0
    again, _ = distribution(moved, token, temperature=0.7, threshold_T=threshold)
    torch.testing.assert_close(again, logprob, rtol=1e-4, atol=1e-4)
    unkept, _ = distribution(moved, token, temperature=0.7)
    assert float((unkept - logprob).abs().max()) > 0.05


def test_antithetic_rows_mirror_their_numbers() -> None:
    logits = torch.zeros(1000, 1024)
    key, position = torch.arange(1000), torch.zeros(1000, dtype=torch.long)
    token, *_ = sample(logits, key, position, temperature=1.0)
    other, *_ = sample(logits, key, position, temperature=1.0, antithetic_B=torch.ones(1000).bool())
    assert int((token + other - 1023).abs().max()) <= 1


def test_greedy_and_rows_without_a_finite_logit() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [-torch.inf] * 3])
    key, position = torch.arange(2), torch.arange(2)
    token, logprob, threshold, _ = sample(logits, key, position, temperature=0.0)
    assert token.tolist() == [1, -1]
    assert logprob.tolist() == threshold.tolist() == [0, -torch.inf]
    token, logprob, _, entropy = sample(logits, key, position, temperature=1.0, entropy=True)
    assert token[1] == -1
    assert logprob[1] == -torch.inf
    assert entropy is not None
    assert entropy[1] == 0


def test_what_cannot_be_is_refused() -> None:
    logits, key = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="greedy"):
        sample(logits, key, key, temperature=-1.0)
    with pytest.raises(ValueError, match=r"not 0, 0\.0, 0\.0"):
        sample(logits, key, key, temperature=1.0, top_p=0.0)
    with pytest.raises(ValueError, match="key has one entry a row"):
        sample(logits, key[:1], key, temperature=1.0)
