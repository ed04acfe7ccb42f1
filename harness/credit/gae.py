"""Generalised advantage estimation over the tokens of multi-turn episodes.

    δ_t = r_t + γ·V_{t'} − V_t        A_t = δ_t + γλ·A_{t'}        returns_t = A_t + V_t

V are the values that the rollout recorded; t' is the next token that counts, and past the end of an
episode V and A are 0, however it stopped. What happens at observation tokens is a convention:

    skip   t' is the next action token; observations do not exist       (verl, NeMo-RL, AReaL)
    zero   t' = t + 1; V and r are 0 at observations, which still decay by γλ and end a turn's
           bootstrap                                                    (OpenRLHF)
    none   t' = t + 1; observations count as actions, values and all    (slime, SkyRL)

The default is skip: a value after an observation is the value of the state that the policy acts in.

Source: Schulman et al., arXiv 1506.02438, equation 16. Degenerate: unscorable episodes get 0 and
are outside of the whitening; without values in Z it is refused.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .packing import episode_of, lesson, whitened
from .returns import check_returns, reverse_scan, token_rewards
from .statistics import Array

CONVENTIONS = ("skip", "zero", "none")


def values_of(Z: Trajectories, name: str) -> Array:
    """values_T in float64. Raises ValueError where Z has none."""
    if "values" not in Z.arrays:
        raise ValueError(
            f"credit {name} needs the values of a critic, but the rollout recorded none; "
            "take a model with a value head, or a credit without values such as group"
        )
    return Z.arrays["values"].astype(np.float64)


def one_step(counts_T: Array, episode_T: Array, V_T: Array) -> tuple[Array, Array, Array]:
    """Positions of the tokens that count, the value at the next one, and whether there is one."""
    at = np.flatnonzero(counts_T)
    more = np.append(episode_T[at][1:] == episode_T[at][:-1], False)[: len(at)]
    following = np.where(more, np.append(V_T[at][1:], 0.0)[: len(at)], 0.0)
    return at, following, more


@dataclass(frozen=True)
class GAE:
    """Advantages from recorded values."""

    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[str, ...]] = ("values",)
    """What it reads of Z that not every rollout records."""
    gives: ClassVar[tuple[str, ...]] = ("values", "returns")
    """What its lessons have besides advantages."""
    gamma: float = 1.0
    lam: float = 1.0
    observations: str = "skip"
    """skip | zero | none"""
    rewards: str = "turn"
    """turn | episode: where rewards lie."""
    normalize: bool = True
    """Whiten the advantages over all action tokens; the returns are of the raw ones."""

    def __post_init__(self) -> None:
        check_returns(self.rewards, self.gamma, self.lam)
        if self.observations not in CONVENTIONS:
            raise ValueError(
                f"observations is {self.observations!r}; it is one of {', '.join(CONVENTIONS)}"
            )

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        r_T, V_T = token_rewards(Z, F, self.rewards), values_of(Z, "gae")
        action_T, values_T = Z.is_action_T, V_T
        counts_T = action_T if self.observations == "skip" else np.ones_like(action_T)
        if self.observations == "zero":
            values_T = np.where(action_T, V_T, 0.0)
        at, following, more = one_step(counts_T, episode_of(Z), values_T)
        delta = r_T[at] + self.gamma * following - values_T[at]
        A_T = np.zeros(len(r_T))
        A_T[at] = reverse_scan(np.where(more, self.gamma * self.lam, 0.0), delta)
        advantages_T = whitened(Z, F, A_T) if self.normalize else A_T
        returns_T = np.where(action_T, A_T + V_T, 0.0)
        return lesson(Z, F, advantages_T, values=np.where(action_T, V_T, 0.0), returns=returns_T)
