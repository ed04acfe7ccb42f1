"""The clipped objective with one ratio a sequence.

    s_b = exp(mean over its action tokens of logπ − logπ_old)

    form `token`       ρ_t = sg(s_b)·π_t/sg(π_t)       L_t as ppo, with each token's own A_t
    form `sequence`    L_b = max(−Ā_b·s_b, −Ā_b·clip(s_b)),  gradient through the mean,
                       weighted by W_b = Σ_t w_t, and Ā_b = Σ_t w_t·A_t/W_b

Both have the same gradient where the credit of a sequence is constant and its weights are equal.
s is within the bounds of ratios of whole sequences: the paper's are 3e-4 and 4e-4, not 0.2.
log s is clamped to ±20, and has no gradient outside.

Source: Zheng et al., arXiv 2507.18071, sections 4.1 and 4.3.

Versions: 1, the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.forms import Lesson

from .ppo import check_clip
from .terms import Terms
from .weights import episode_of

if TYPE_CHECKING:
    from harness.kernels.policy_rows.reference import Objective

CLAMP = 20.0


@dataclass(frozen=True, kw_only=True)
class GSPO(Terms):
    """A clipped ratio of sequences."""

    version: ClassVar[str] = "1"
    passes: ClassVar[int] = 2
    form: str = "token"
    """token | sequence"""
    aggregation: str = "sequence_mean"
    clip_low: float = 3e-4
    clip_high: float = 4e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip_low, self.clip_high)
        if self.form not in ("token", "sequence"):
            raise ValueError(f"form is {self.form!r}; it is one of token, sequence")
        if self.form == "sequence" and self.correction in ("truncate", "mask"):
            raise ValueError(
                f"correction is {self.correction!r}, which weighs tokens, but form sequence has "
                "one loss a sequence; take sequence_mask, or form token"
            )

    def kernel(self) -> Objective:
        return self.row_objective("gspo_token", clip_low=self.clip_low, clip_high=self.clip_high)

    def sequence_log_ratio(
        self, lesson: Lesson, logp_T: np.ndarray, old_T: np.ndarray
    ) -> np.ndarray:
        """log s of each row's episode, in float64; 0 for rows that are no actions."""
        action_T, episode_T = lesson.arrays["is_action"], episode_of(lesson)
        used_T = self.weights(lesson) != 0
        gap_T = np.where(used_T, np.asarray(logp_T, np.float64) - old_T, 0.0)
        episodes = len(lesson.arrays["episode_offsets"]) - 1
        counts_B = np.bincount(episode_T, used_T, episodes)
        mean_B = np.bincount(episode_T, gap_T, episodes) / np.maximum(counts_B, 1)
        return np.where(action_T, mean_B[episode_T], 0.0)

    def coefficients(
        self,
        lesson: Lesson,
        logp_T: np.ndarray,
        *,
        old_logprobs_T: np.ndarray | None = None,
        correction_T: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float]:
        given = {"old_logprobs_T": old_logprobs_T, "correction_T": correction_T}
        if self.form == "token":
            return super().coefficients(lesson, logp_T, **given)
        # the terms beside the ratio's loss are those of a lesson without credit
        silent = lesson.replace({}, advantages=np.zeros_like(lesson.advantages_T))
        others_T, others = super().coefficients(silent, logp_T, **given)
        slope_B, loss, _ = self._sequences(lesson, logp_T, **given)
        used_T = self.weights(lesson) != 0
        dlogp_T = np.where(used_T, slope_B[episode_of(lesson)], 0.0) + others_T
        return dlogp_T.astype(np.float32), loss + others

    def clipped(
        self,
        lesson: Lesson,
        logp_T: np.ndarray,
        *,
        old_logprobs_T: np.ndarray | None = None,
        correction_T: np.ndarray | None = None,
    ) -> np.ndarray | None:
        given = {"old_logprobs_T": old_logprobs_T, "correction_T": correction_T}
        if self.form == "token":
            return super().clipped(lesson, logp_T, **given)
        _, _, held_B = self._sequences(lesson, logp_T, **given)
        return (self.weights(lesson) != 0) & held_B[episode_of(lesson)]

    def _sequences(
        self,
        lesson: Lesson,
        logp_T: np.ndarray,
        old_logprobs_T: np.ndarray | None,
        correction_T: np.ndarray | None,
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """Per episode the slope of a token's logπ, and whether a bound holds; and the loss."""
        old_T = lesson.arrays["logprobs"] if old_logprobs_T is None else old_logprobs_T
        w_T = self.weights(lesson).astype(np.float64)
        if correction_T is not None:
            w_T = w_T * correction_T
        episode_T = episode_of(lesson)
        episodes = len(lesson.arrays["episode_offsets"]) - 1

        def total(values_T: np.ndarray) -> np.ndarray:
            return np.bincount(episode_T, values_T, episodes)

        used_T = self.weights(lesson) != 0
        log_s_B = total(np.where(used_T, self.sequence_log_ratio(lesson, logp_T, old_T), 0.0))
        counts_B = np.maximum(total(used_T), 1)
        log_s_B = log_s_B / counts_B
        s_B = np.exp(np.clip(log_s_B, -CLAMP, CLAMP))
        credit_B = total(w_T * lesson.advantages_T)
        free_B, held_B = (
            -credit_B * s_B,
            -credit_B * s_B.clip(1 - self.clip_low, 1 + self.clip_high),
        )
        live_B = (free_B >= held_B) & (np.abs(log_s_B) < CLAMP)
        slope_B = np.where(live_B, free_B / counts_B, 0.0)
        return slope_B, float(np.maximum(free_B, held_B).sum()), held_B > free_B
