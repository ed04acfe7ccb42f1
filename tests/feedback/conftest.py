"""Small hand-made trajectories for the tests of feedback."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.forms import Instance, Trajectories
from harness.round import Seed

Inputs = tuple[Instance, Trajectories, Seed]


def make(
    turns: Sequence[Sequence[float]],
    *,
    attempts: int = 1,
    texts: Sequence[Sequence[str]] | None = None,
    problems: Sequence[Any] | None = None,
    lengths: Sequence[int] | None = None,
) -> Inputs:
    """Episodes given by the rewards of their turns; a turn is one token and two sampled ones."""
    sizes = [3 * len(rewards) for rewards in turns]
    mask = np.array([m for rewards in turns for _ in rewards for m in (0, 1, 1)], bool)
    if lengths is not None:
        sizes = [length + 1 for length in lengths]
        mask = np.array([k > 0 for size in sizes for k in range(size)], bool)
    starts = np.arange(sum(map(len, turns)), dtype=np.int64) * 3 + 1
    written = texts or [[f"turn {k}" for k in range(len(rewards))] for rewards in turns]
    Z = Trajectories(
        {
            "problems": len(turns) // attempts,
            "attempts": attempts,
            "sampling": {"temperature": 1.0},
            "episodes": [
                {"turns": [{"action": {"text": text}, "event": {}} for text in row]}
                for row in written
            ],
        },
        {
            "token_ids": np.zeros(sum(sizes), np.int32),
            "is_action": mask,
            "logprobs": np.zeros(sum(sizes), np.float32),
            "episode_offsets": np.cumsum([0, *sizes]).astype(np.int64),
            "stop": np.zeros(len(turns), np.uint8),
            "turn_episode": np.repeat(np.arange(len(turns)), [len(t) for t in turns]).astype("i4"),
            "turn_start": starts,
            "turn_end": starts + 2,
            "turn_rewards": np.array([r for rewards in turns for r in rewards], np.float64),
        },
    )
    given = problems or [{"messages": [], "answer": None}] * Z.problems
    return Instance({"problems": list(given)}), Z, Seed("0" * 32)


@pytest.fixture
def inputs() -> Callable[..., Inputs]:
    return make
