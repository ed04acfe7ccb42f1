"""Group in group: an episode against its group, a turn against the turns in its state.

    A_E(i)  = (R_i − μ)/(σ + ε)        over the attempts at the problem
    A_S(k)  = (G_k − μ_s)/(σ_s + ε)    over the turns of those attempts that met turn k's state s
    G_k     = r_k + γ·G_{k+1}          over the turns of an episode
    A       = A_E + weight·A_S         on every token of turn k

scale `none` leaves both divisions out. States are equal where the environment's state keys are; a
turn without a key shares its state with no other.

Source: Feng et al., arXiv 2505.10978, section 4. Degenerate: a state that one turn alone met, equal
returns, and unscorable episodes add 0; so with all states distinct it is group credit.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.round import Seed

from .group import group_advantages, refuse_singletons
from .packing import lesson, rewards_of, spread_turns
from .returns import check_returns, turn_returns
from .statistics import Array, labels_of
from .turn import relative


def state_labels(Z: Trajectories) -> Array:
    """Equal numbers for turns of attempts at one problem that met one state."""
    keys: list[tuple[int, str, int]] = []
    for b, episode in enumerate(Z.episodes):
        for turn in episode["turns"]:
            state = str(turn["event"]["key"])
            keys.append((b // max(Z.attempts, 1), state, -1 if state else len(keys)))
    if len(keys) != len(Z.arrays["turn_episode"]):
        raise ValueError(
            f"the episodes name {len(keys)} turns, but {len(Z.arrays['turn_episode'])} are packed"
        )
    return labels_of(keys)


@dataclass(frozen=True)
class GiGPO:
    """Episode credit plus credit of turns among those in an equal state."""

    version: ClassVar[str] = "1"
    gamma: float = 0.95
    """Discount per turn."""
    weight: float = 1.0
    """Of the turn's credit."""
    scale: str = "std"
    """std | none"""
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_returns("turn", self.gamma)
        if self.scale not in ("std", "none"):
            raise ValueError(f"scale is {self.scale!r}; it is one of std, none")
        if not (self.eps > 0 and 0 <= self.weight < float("inf")):
            raise ValueError(
                f"eps is {self.eps} and weight {self.weight}; the first is above 0, "
                "the second not negative"
            )

    def check(self, attempts: int) -> None:
        refuse_singletons("gigpo", attempts)

    def __call__(self, X: Instance, Z: Trajectories, F: Scores, seed: Seed) -> Lesson:
        scale = "group" if self.scale == "std" else "none"
        episode_B = group_advantages(rewards_of(Z, F), Z.attempts, "mean", scale, self.eps)
        G_N = turn_returns(Z, F, self.gamma)
        turn_N = relative(G_N, state_labels(Z), self.scale, self.eps)
        credit_N = episode_B[Z.arrays["turn_episode"]] + self.weight * turn_N
        return lesson(Z, F, spread_turns(Z, credit_N))
