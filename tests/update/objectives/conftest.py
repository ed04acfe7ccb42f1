"""Small hand-made lessons for the tests of objectives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.forms import Lesson


def make(
    masks: Sequence[Sequence[int]],
    advantages: Sequence[float] | None = None,
    *,
    use: str = "policy",
    unscorable: Sequence[int] = (),
    pairs: Sequence[Sequence[int]] = (),
    **arrays: Any,
) -> Lesson:
    """Episodes with these action masks and advantages (one a token)."""
    size = sum(map(len, masks))
    mask = np.array([m for row in masks for m in row], bool)
    given = np.where(mask, np.ones(size) if advantages is None else advantages, 0)
    return Lesson(
        {
            "problems": 1, "attempts": len(masks), "sampling": {"temperature": 1.0}, "use": use,
            "pairs": [list(pair) for pair in pairs], "unscorable": list(unscorable),
        },
        {
            "token_ids": np.arange(size, dtype=np.int32),
            "is_action": mask,
            "episode_offsets": np.cumsum([0, *map(len, masks)]).astype(np.int64),
            "logprobs": np.where(mask, -1.0, 0.0).astype(np.float32),
            "advantages": given.astype(np.float32),
            **{name: np.array(values, np.float32) for name, values in arrays.items()},
        },
    )  # fmt: skip


@pytest.fixture
def lesson() -> Callable[..., Lesson]:
    return make
