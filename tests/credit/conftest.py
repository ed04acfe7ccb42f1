"""Small hand-made batches for the tests of credit."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.forms import Instance, Scores, Trajectories
from harness.round import Seed

Batch = tuple[Instance, Trajectories, Scores, Seed]


def make(
    rewards: Sequence[float],
    attempts: int,
    masks: Sequence[Sequence[int]] | None = None,
    turn_rewards: Sequence[float] | None = None,
    states: Sequence[str] | None = None,
    **arrays: Any,
) -> Batch:
    """Episodes with these rewards; a run of ones in a mask is a turn."""
    rows = [list(mask) for mask in (masks or [[0, 1, 1]] * len(rewards))]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    spans = []
    for b, row in enumerate(rows):
        edges = np.flatnonzero(np.diff([0, *row, 0]))
        spans += [(b, s + offsets[b], e + offsets[b]) for s, e in edges.reshape(-1, 2)]
    turn_episode = np.array([b for b, _, _ in spans], np.int32)
    given = np.zeros(len(spans)) if turn_rewards is None else np.array(turn_rewards, np.float64)
    names = list(states or [f"turn {k}" for k in range(len(spans))])
    episodes = [
        {"turns": [{"event": {"key": names[k]}} for k in np.flatnonzero(turn_episode == b)]}
        for b in range(len(rows))
    ]
    size = int(offsets[-1])
    Z = Trajectories(
        {
            "problems": len(rewards) // attempts,
            "attempts": attempts,
            "sampling": {"temperature": 1.0},
            "episodes": episodes,
        },
        {
            "token_ids": np.arange(size, dtype=np.int32),
            "is_action": np.array([m for row in rows for m in row], bool),
            "logprobs": np.full(size, -1.0, np.float32),
            "episode_offsets": offsets,
            "stop": np.zeros(len(rows), np.uint8),
            "turn_episode": turn_episode,
            "turn_start": np.array([s for _, s, _ in spans], np.int64),
            "turn_end": np.array([e for _, _, e in spans], np.int64),
            "turn_rewards": given,
            **{name: np.array(values, np.float32) for name, values in arrays.items()},
        },
    )
    X = Instance({"problems": [{"messages": []}] * Z.problems})
    scores = {"rewards": np.array(rewards, np.float64)}
    if turn_rewards is not None:
        scores["turn_rewards"] = given
    return X, Z, Scores({"components": ["test"]}, scores), Seed("0" * 32)


@pytest.fixture
def batch() -> Callable[..., Batch]:
    return make


@pytest.fixture
def episode_credit() -> Callable[..., np.ndarray]:
    """The credit that a map gives each episode, as one number an episode."""

    def read(credit: Any, rewards: Sequence[float], attempts: int) -> np.ndarray:
        X, Z, F, seed = make(rewards, attempts)
        G = credit(X, Z, F, seed)
        assert not G.advantages_T[~Z.is_action_T].any()
        rows = G.advantages_T.reshape(len(rewards), 3)[:, 1:]
        assert (rows[:, 0] == rows[:, 1]).all()
        return rows[:, 0]

    return read
