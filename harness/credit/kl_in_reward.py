"""A penalty on the way to a reference, taken from the reward before another credit sees it.

    r_t ← r_t − coef·K_t on action tokens        R_b ← R_b − coef·Σ_t K_t
    δ_t = logπ − logπ_ref of the token, both recorded by the rollout
    k1  K = δ        k2  K = δ²/2        k3  K = e^{−δ} − 1 + δ        (exponents within ±20)

Credits over tokens (reinforce, reinforce_pp, gae, vtrace) see each token's own penalty, those over
episodes (group, rloo, …) the sum. With rloo and k1 this is the reward of TRL's RLOO trainer.

Source: Ouyang et al., arXiv 2203.02155, equation 2; estimators: Schulman, Approximating KL
divergence (2020). Degenerate: unscorable episodes stay so; coef 0 is refused; without
ref_logprobs in Z it is refused.

Versions: 1, the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.identity import evidence
from harness.round import Credit, Seed

from .packing import episode_of, rewards_of, statistics
from .statistics import Array

KINDS = ("k1", "k2", "k3")


def estimate(kind: str, delta: Array) -> Array:
    """K of the log-ratio δ: see the top of this file."""
    if kind == "k1":
        return delta
    if kind == "k2":
        return delta**2 / 2
    return np.expm1(-np.clip(delta, -20, 20)) + delta


@dataclass(frozen=True)
class KLInReward:
    """Another credit, of penalised rewards."""

    version: ClassVar[str] = "1"
    inner: Credit
    """The credit that is given for what remains."""
    coef: float = 0.01
    kind: str = "k1"
    """k1 | k2 | k3"""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; it is one of {', '.join(KINDS)}")
        if not (self.coef > 0 and math.isfinite(self.coef)):
            raise ValueError(f"coef is {self.coef}; it is a finite number above 0")

    @property
    def needs(self) -> tuple[str, ...]:
        """What it and the inner credit read of Z that not every rollout records."""
        return ("ref_logprobs", *getattr(self.inner, "needs", ()))

    @property
    def gives(self) -> tuple[str, ...]:
        """What the inner credit's lessons have besides advantages."""
        return tuple(getattr(self.inner, "gives", ()))

    @property
    def use(self) -> str:
        """What the inner credit's lessons are for."""
        return str(getattr(self.inner, "use", "policy"))

    @property
    def observations(self) -> str | None:
        """The inner credit's convention, where it has one."""
        return getattr(self.inner, "observations", None)

    def check(self, attempts: int) -> None:
        inner: Any = self.inner
        if hasattr(inner, "check"):
            inner.check(attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        if "ref_logprobs" not in Z.arrays:
            raise ValueError(
                "credit kl_in_reward needs the log-probabilities of a reference, but the rollout "
                "recorded none; name a reference there, or take the inner credit alone"
            )
        gap_T = Z.logprobs_T.astype(np.float64) - Z.arrays["ref_logprobs"]
        penalty_T = np.where(Z.is_action_T, self.coef * estimate(self.kind, gap_T), 0.0)
        rewards_B = rewards_of(Z, F)
        summed_B = np.bincount(episode_of(Z), penalty_T, len(rewards_B))
        penalised = F.replace({}, rewards=rewards_B - summed_B, token_penalties=penalty_T)
        G: Lesson = self.inner(X, Z, penalised, seed)
        scored_B = ~np.isnan(rewards_B)
        mean = summed_B[scored_B].mean() if scored_B.any() else np.nan
        told = {**statistics(Z, rewards_B), "penalty_mean": evidence(mean)}
        return G.replace({"statistics": told})
