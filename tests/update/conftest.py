"""Small rounds for the tests of the update: what a tiny model did, and credit for it."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.environments.vault import Vault
from harness.forms import Lesson, Trajectories
from harness.policies.inference import Inference
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny
from harness.rollout.sampled import Sampled
from harness.round import Seed, State
from harness.tasks.product import Product
from harness.tasks.vault import Vault as Codes
from harness.update.deepspeed import DeepSpeed
from harness.update.engine import initial_optimizer
from harness.update.gates.always import Always
from harness.update.objectives.ppo import PPO

SIZES: dict[str, Any] = {"hidden": 32, "heads": 2, "intermediate": 64, "scale": 0.3}


def lesson_of(Z: Trajectories, advantages_B: np.ndarray) -> Lesson:
    """Every action token of an episode carries its credit."""
    lengths = np.diff(Z.episode_offsets)
    credit = np.repeat(advantages_B, lengths) * Z.is_action_T
    carried = ("token_ids", "is_action", "episode_offsets", "logprobs", "threshold")
    arrays = {name: Z.arrays[name] for name in carried if name in Z.arrays}
    meta = {"problems": Z.problems, "attempts": Z.attempts, "sampling": Z.meta["sampling"],
            "use": "policy", "pairs": [], "unscorable": []}  # fmt: skip
    return Lesson(meta, {**arrays, "advantages": credit.astype(np.float32)})


def start_of(model: Any) -> State:
    return State(model, initial_optimizer(model))


def copied_state(model: Any, state: State) -> State:
    """The same state in tensors of its own, as a store would give it."""
    own = lambda artifact: {n: t.clone() for n, t in artifact.tensors.items()}  # noqa: E731
    copy = State(model.with_tensors(own(state.model)),
                 state.optimizer.with_tensors(own(state.optimizer)))  # type: ignore[attr-defined]  # fmt: skip
    assert copy.exact() == state.exact()
    return copy


def played(
    dtype: str = "float32", seed: int = 0, on: Callable[[Any], Any] = lambda tiny: tiny,
    **family: Any,
) -> SimpleNamespace:  # fmt: skip
    """A starting state, what it did in the vault, and credit that is 0 for some episodes.

    on: the kind of model, given the tiny one.
    """
    model = on(Tiny(dtype=dtype, seed=seed, **SIZES)).initial()
    iota = Inference(
        serializer=Plain(), max_turn_tokens=2, max_turns=4, max_episode_tokens=8, context=64,
        **family,
    )  # fmt: skip
    resident = Resident()
    X = Product(Codes(), problems=3)(Seed("11" * 16))
    policy = resident.policy(model, iota)
    Z = Sampled(attempts=4)(policy, Vault())(X, Seed("22" * 16))
    advantages = np.array([1.0, -0.5, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0, -1.0, 2.0, 0.0, -1.0])
    return SimpleNamespace(
        model=model, state=start_of(model), iota=iota, X=X, Z=Z, G=lesson_of(Z, advantages),
        resident=resident, copies=partial(copied_state, model),
    )  # fmt: skip


def updater(resident: Any, decision: str = "accept", **settings: Any) -> DeepSpeed:
    given = {"objective": PPO(), "lr": 1e-3, "gates": {"always": Always(decision)}}
    return DeepSpeed(**{**given, **settings}, resident=resident)


@pytest.fixture(scope="session")
def play() -> Callable[..., SimpleNamespace]:
    return played


@pytest.fixture(scope="session")
def update() -> Callable[..., DeepSpeed]:
    return updater


@pytest.fixture(scope="session")
def lesson() -> Callable[..., Lesson]:
    return lesson_of


@pytest.fixture(scope="session")
def start() -> Callable[..., State]:
    return start_of
