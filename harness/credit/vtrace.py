"""V-trace: values corrected for the policy that sampled.

    ρ_t = min(ρ̄, w_t)    c_t = λ·min(c̄, w_t)    w_t = π_target/π_behaviour at the action taken
    v_t = V_t + δ_t + γ·c_t·(v_{t'} − V_{t'})    δ_t = ρ_t·(r_t + γ·V_{t'} − V_t)
    A_t = ρ_t·(r_t + γ·v_{t'} − V_t)             returns_t = v_t

t' is the next action token of the episode (observations do not exist), past its end V and v are
0. The target's log-probabilities are `target_logprobs` in Z where a rollout by an older policy
recorded them; without them the episodes are on policy, w = 1, and v_t is the λ-return.

Source: Espeholt et al., arXiv 1802.01561, section 4.1. Degenerate: as `harness.credit.gae`.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .gae import one_step, values_of
from .packing import episode_of, lesson, whitened
from .returns import check_returns, reverse_scan, token_rewards


@dataclass(frozen=True)
class VTrace:
    """Truncated importance weights on recorded values."""

    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[str, ...]] = ("values",)
    """What it reads of Z that not every rollout records."""
    gives: ClassVar[tuple[str, ...]] = ("values", "returns")
    """What its lessons have besides advantages."""
    gamma: float = 1.0
    lam: float = 1.0
    rho_bar: float = 1.0
    c_bar: float = 1.0
    rewards: str = "turn"
    """turn | episode: where rewards lie."""
    normalize: bool = False
    """Whiten the advantages over all action tokens."""

    def __post_init__(self) -> None:
        check_returns(self.rewards, self.gamma, self.lam)
        if not 0 < self.c_bar <= self.rho_bar < float("inf"):
            raise ValueError(
                f"c_bar is {self.c_bar} and rho_bar {self.rho_bar}; 0 < c_bar <= rho_bar"
            )

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        r_T, V_T = token_rewards(Z, F, self.rewards), values_of(Z, "vtrace")
        at, following, more = one_step(Z.is_action_T, episode_of(Z), V_T)
        behaviour = Z.logprobs_T[at].astype(np.float64)
        target = Z.arrays.get("target_logprobs", Z.logprobs_T)[at]
        w = np.exp(np.clip(target - behaviour, -20, 20))
        rho, c = np.minimum(self.rho_bar, w), self.lam * np.minimum(self.c_bar, w)
        r, V = r_T[at], V_T[at]
        delta = rho * (r + self.gamma * following - V)
        v = V + reverse_scan(np.where(more, self.gamma * c, 0.0), delta)
        v_following = np.where(more, np.append(v[1:], 0.0)[: len(v)], 0.0)
        A_T, v_T, recorded_T = (np.zeros(len(r_T)) for _ in range(3))
        A_T[at] = rho * (r + self.gamma * v_following - V)
        v_T[at], recorded_T[at] = v, V
        advantages_T = whitened(Z, F, A_T) if self.normalize else A_T
        return lesson(Z, F, advantages_T, values=recorded_T, returns=v_T)
