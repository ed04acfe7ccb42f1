"""Direct preference optimisation on pairs of episodes.

    m = Σ_{t in chosen} (logπ − logπ_ref) − Σ_{t in rejected} (logπ − logπ_ref)
    loss = −mean over pairs of log σ(β·m)
    ∂loss/∂logπ_t = ∓β·σ(−β·m)/pairs,    − for chosen, + for rejected tokens, summed over pairs

reference `recorded`: ref_logprobs of the lesson. reference `behaviour`: the policy that sampled, so
that m is 0 before the first step, and each round moves from where it stands.

Source: Rafailov et al., arXiv 2305.18290, equation 7; on line: Guo et al., arXiv 2402.04792.
No pair: no loss, no gradient.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.forms import Lesson

from .weights import episode_of

if TYPE_CHECKING:
    from harness.kernels.policy_rows.reference import Objective


@dataclass(frozen=True, kw_only=True)
class DPO:
    """Log-odds of chosen against rejected episodes, relative to a reference."""

    version: ClassVar[str] = "1"
    uses: ClassVar[str] = "pairs"
    passes: ClassVar[int] = 2
    scores_old: ClassVar[bool] = False
    entropy_coef: ClassVar[float] = 0.0
    value_coef: ClassVar[float] = 0.0
    beta: float = 0.1
    reference: str = "behaviour"
    """behaviour | recorded"""

    @property
    def needs(self) -> dict[str, str]:
        """What it reads of a lesson that not every one has, and which setting asks for it."""
        return {"ref_logprobs": "reference=recorded"} if self.reference == "recorded" else {}

    def __post_init__(self) -> None:
        if not 0 < self.beta < float("inf"):
            raise ValueError(f"beta is {self.beta}; it is a finite number above 0")
        if self.reference not in ("behaviour", "recorded"):
            raise ValueError(f"reference is {self.reference!r}; it is one of behaviour, recorded")

    def check(self, lesson: Lesson) -> None:
        """One sentence where the lesson has no pairs in it, or lacks the reference."""
        if lesson.meta["use"] != self.uses:
            raise ValueError(
                f"the credit is for {lesson.meta['use']!r}, but dpo learns from pairs; "
                "take credit=pairs, or another objective"
            )
        if self.reference == "recorded" and "ref_logprobs" not in lesson.arrays:
            raise ValueError(
                "reference is 'recorded', but no reference log-probabilities were recorded; "
                "set a reference in the rollout, or reference to behaviour"
            )

    def kernel(self) -> Objective | None:
        """None: coefficients come from `coefficients` alone."""
        return None

    def pairs(self, lesson: Lesson) -> np.ndarray:
        """[pairs, 2] episodes, chosen and rejected."""
        self.check(lesson)
        return np.array(lesson.meta["pairs"], np.int64).reshape(-1, 2)

    def weights(self, lesson: Lesson) -> np.ndarray:
        """weights_T float32: in how many pairs a token takes part, over the number of pairs."""
        pairs = self.pairs(lesson)
        episodes = len(lesson.arrays["episode_offsets"]) - 1
        share_B = np.bincount(pairs.reshape(-1), minlength=episodes) / max(len(pairs), 1)
        return np.where(lesson.arrays["is_action"], share_B[episode_of(lesson)], 0.0).astype("f4")

    def row_mask(self, lesson: Lesson) -> np.ndarray:
        """Action tokens of episodes in a pair: the others may skip the LM head."""
        return self.weights(lesson) != 0

    def correction_weights(self, lesson: Lesson, logp_T: np.ndarray) -> np.ndarray:
        """Ones: the loss has no samples to weigh, only preferences."""
        return np.ones(len(logp_T), np.float32)

    def dentropy(self, lesson: Lesson) -> np.ndarray:
        """Zeros: no entropy term."""
        return np.zeros(len(lesson.advantages_T), np.float32)

    def clipped(self, lesson: Lesson, logp_T: np.ndarray, **given: np.ndarray | None) -> None:
        """None: nothing bounds this loss."""

    def coefficients(
        self,
        lesson: Lesson,
        logp_T: np.ndarray,
        *,
        old_logprobs_T: np.ndarray | None = None,
        correction_T: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float]:
        """dlogp_T float32 and the loss, in float64: the equations above."""
        pairs, live_T = self.pairs(lesson), self.row_mask(lesson)
        if not len(pairs):
            return np.zeros(len(logp_T), np.float32), 0.0
        name = "ref_logprobs" if self.reference == "recorded" else "logprobs"
        gap_T = np.asarray(logp_T, np.float64) - lesson.arrays[name]
        episode_T = episode_of(lesson)
        episodes = len(lesson.arrays["episode_offsets"]) - 1
        gap_B = np.bincount(episode_T, np.where(live_T, gap_T, 0.0), episodes)
        logit = self.beta * (gap_B[pairs[:, 0]] - gap_B[pairs[:, 1]])
        loss = float(np.logaddexp(0.0, -logit).mean())
        # σ(−x) without overflow on either side
        push = self.beta * np.exp(-np.logaddexp(0.0, logit)) / len(pairs)
        slope_B = np.bincount(pairs[:, 1], push, episodes) - np.bincount(
            pairs[:, 0], push, episodes
        )
        return np.where(live_T, slope_B[episode_T], 0.0).astype(np.float32), loss
