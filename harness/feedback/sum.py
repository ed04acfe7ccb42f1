"""A weighted sum of feedback by name.

    R_b = Σ_k w_k·R_b^k        r_n = Σ_k w_k·r_n^k over components that reward turns

Component k draws from seed.fold("component", k), so adding one changes no other. An episode that a
component with a weight cannot score is unscorable: a partial sum would not compare with full ones
(TRL sums what is there). A weight of 0 measures without counting, and what it cannot score stays.

Source: none; a convention. A weight is 1 where none is given.

Versions: 1, the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from harness.forms import Instance, Scores, Trajectories
from harness.round import Feedback, Seed


@dataclass(frozen=True)
class Sum:
    """Several feedbacks as one."""

    version: ClassVar[str] = "1"
    components: Mapping[str, Feedback]
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.components:
            raise ValueError("components is empty; a sum has at least one component")
        unknown = sorted(set(self.weights) - set(self.components))
        if unknown:
            known = ", ".join(self.components)
            raise ValueError(f"weights names {unknown[0]!r}, but the components are {known}")
        for name, weight in self.weights.items():
            if not math.isfinite(weight):
                raise ValueError(f"weights.{name} is {weight}; it is a finite number")

    def __call__(self, X: Instance, Z: Trajectories, seed: Seed) -> Scores:
        scores = {
            name: component(X, Z, seed.fold("component", name))
            for name, component in sorted(self.components.items())
        }
        weights = {name: float(self.weights.get(name, 1.0)) for name in scores}
        counted = [name for name in scores if weights[name] != 0]
        rewards_B = np.zeros(len(Z.episode_offsets) - 1)
        for name in counted:
            rewards_B = rewards_B + weights[name] * scores[name].rewards_B
        arrays = {
            "rewards": rewards_B,
            "components": np.stack([F.rewards_B for F in scores.values()], axis=1),
        }
        turns = [name for name in counted if "turn_rewards" in scores[name].arrays]
        if turns:
            parts = [weights[name] * scores[name].arrays["turn_rewards"] for name in turns]
            arrays["turn_rewards"] = np.sum(parts, axis=0)
        return Scores({"components": list(scores), "weights": weights}, arrays)
