"""What the policy objectives share: aggregation, KL and entropy terms, correction, value loss.

    loss = Σ_t w_t·(c_t·L_t + kl_coef·K_t − entropy_coef·H_t)  +  value_coef·Σ_t w_t·V_t

L is the objective's own (see its file), w from `weights`, c from `correction`, K and H as in
`kernels/policy_rows`. K is differentiated as it stands: on samples of the policy the gradient of k2
is that of KL(π‖π_ref) in expectation, that of k1 has expectation 0, that of k3 is of KL(π_ref‖π).

    V_t = ½·max((v − R)², (v_old + clip(v − v_old, ±value_clip) − R)²)

Source: clipped value loss: Baselines' PPO2, see Huang et al., The 37 implementation details
(2022).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.forms import Lesson

from .correction import check_correction, correct
from .weights import aggregate, check_aggregation, used

if TYPE_CHECKING:
    from harness.kernels.policy_rows.reference import Objective

KLS = ("k1", "k2", "k3")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Settings and sums that reinforce, ppo, cispo and gspo have in common."""

    uses: ClassVar[str] = "policy"
    """The lessons it is for."""
    passes: ClassVar[int] = 1
    """1: all coefficients are known row by row. 2: every log-probability is needed first."""

    aggregation: str = "token_mean"
    """token_mean | sequence_mean | sequence_sum | sequence_sum_norm"""
    length: float | None = None
    """The constant of sequence_sum_norm, such as the token budget of an episode."""
    kl: str | None = None
    """k1 | k2 | k3: estimator of the KL term, against ref_logprobs of the lesson."""
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    correction: str = "none"
    """none | truncate | mask | sequence_mask: rollout engine against trainer."""
    correction_low: float = 0.0
    correction_high: float = 2.0
    value_coef: float = 0.0
    """Weight of the critic's loss, for lessons with values and returns."""
    value_clip: float | None = 0.2
    """How far a value may move from the recorded one before its loss stops; null: anywhere."""
    value_detach: bool = field(default=False, metadata={"identity": "unless default"})
    """Whether the critic's loss teaches its head alone, and not the body."""

    def __post_init__(self) -> None:
        check_aggregation(self.aggregation, self.length)
        check_correction(self.correction, self.correction_low, self.correction_high)
        if (self.kl is not None) != (self.kl_coef != 0) or self.kl not in (None, *KLS):
            raise ValueError(
                f"kl is {self.kl!r} with kl_coef {self.kl_coef}; a KL term needs one of "
                "k1, k2, k3 and a coefficient other than 0"
            )
        for name in ("kl_coef", "entropy_coef", "value_coef"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}; it is a finite number")
        if self.value_coef < 0 or (self.value_clip is not None and not self.value_clip > 0):
            raise ValueError(
                f"value_coef is {self.value_coef} and value_clip {self.value_clip}; the first is "
                "not negative, the second above 0 or null"
            )

    @property
    def needs(self) -> dict[str, str]:
        """What it reads of a lesson that not every one has, and which setting asks for it."""
        asked = {} if self.kl_coef == 0 else {"ref_logprobs": f"kl_coef={self.kl_coef}"}
        if self.value_coef != 0:
            asked |= dict.fromkeys(("values", "returns"), f"value_coef={self.value_coef}")
        return asked

    @property
    def scores_old(self) -> bool:
        """Whether the trainer's log-probabilities at the starting state are needed: they are the
        old ones then, and the rollout's only enter the correction."""
        return self.correction != "none"

    def kernel(self) -> Objective:
        """The loss of one row, for `kernels/policy_rows`."""
        raise NotImplementedError

    def row_objective(self, kind: str, **own: Any) -> Objective:
        """The kernel's loss of this kind with the shared terms."""
        from harness.kernels.policy_rows.reference import Objective

        shared: dict[str, Any] = {"kl_kind": self.kl, "kl_coef": self.kl_coef}
        shared |= {"kind": kind, "entropy_coef": self.entropy_coef}
        return Objective(**shared, **own)

    def weights(self, lesson: Lesson) -> np.ndarray:
        """weights_T float32 over the whole batch, all normalisers inside; 0 outside of actions."""
        self.check(lesson)
        w_T = aggregate(lesson, used(lesson), self.aggregation, self.length)
        return w_T.astype(np.float32)

    def row_mask(self, lesson: Lesson) -> np.ndarray:
        """Rows with any coefficient other than 0: the others may skip the model."""
        live_T = lesson.advantages_T != 0
        if self.kl_coef != 0 or self.entropy_coef != 0 or self.value_coef != 0:
            live_T = np.ones_like(live_T)
        return live_T & (self.weights(lesson) != 0)

    def correction_weights(self, lesson: Lesson, logp_T: np.ndarray) -> np.ndarray:
        """correction_T float32 from the trainer's log-probabilities at the starting state."""
        bounds = (self.correction_low, self.correction_high)
        return correct(lesson, logp_T, self.correction, *bounds)

    def check(self, lesson: Lesson) -> None:
        """One sentence where the lesson is for something else, or lacks what a term reads."""
        use = lesson.meta["use"]
        if use != self.uses:
            raise ValueError(
                f"the credit is for {use!r}, but this objective learns from {self.uses!r}; "
                "change either"
            )
        if self.kl_coef != 0 and "ref_logprobs" not in lesson.arrays:
            raise ValueError(
                f"kl_coef is {self.kl_coef}, but no reference log-probabilities were recorded; "
                "set a reference in the rollout, or kl_coef to 0"
            )
        if self.value_coef != 0 and not {"values", "returns"} <= lesson.arrays.keys():
            raise ValueError(
                "a value loss needs a credit that records values and returns, such as gae"
            )

    def dentropy(self, lesson: Lesson) -> np.ndarray:
        """Derivative of the loss by each row's entropy, float32; for two passes."""
        return (-self.entropy_coef * self.weights(lesson)).astype(np.float32)

    def coefficients(
        self,
        lesson: Lesson,
        logp_T: np.ndarray,
        *,
        old_logprobs_T: np.ndarray | None = None,
        correction_T: np.ndarray | None = None,
    ) -> tuple[np.ndarray, float]:
        """dlogp_T float32 and the loss without its entropy term, over the whole batch in float64.

        `old_logprobs_T` stands in for the recorded ones where the trainer scored its own.
        """
        import torch

        logp, terms = self._terms(lesson, logp_T, old_logprobs_T, correction_T)
        loss = terms.loss.sum()
        (dlogp,) = torch.autograd.grad(loss, logp)
        return dlogp.numpy().astype(np.float32), float(loss.detach())

    def clipped(
        self,
        lesson: Lesson,
        logp_T: np.ndarray,
        *,
        old_logprobs_T: np.ndarray | None = None,
        correction_T: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """clipped_T bool: where a bound cut the gradient; None for an objective without bounds."""
        _, terms = self._terms(lesson, logp_T, old_logprobs_T, correction_T)
        return np.asarray(terms.clipped.numpy() != 0)

    def _terms(
        self,
        lesson: Lesson,
        logp_T: np.ndarray,
        old_logprobs_T: np.ndarray | None,
        correction_T: np.ndarray | None,
    ) -> tuple[Any, Any]:
        """The log-probabilities as a leaf, and each row's terms, in float64."""
        import torch

        from harness.kernels.policy_rows.reference import Rows, token_loss

        def row(array: np.ndarray | None) -> torch.Tensor | None:
            return None if array is None else torch.tensor(array, dtype=torch.float64)

        old_T = lesson.arrays["logprobs"] if old_logprobs_T is None else old_logprobs_T
        weights_T = self.weights(lesson)
        # rows of no weight may hold anything: not even their NaN reaches a gradient
        logp_T = np.where(weights_T == 0, 0.0, logp_T)
        logp = torch.tensor(logp_T, dtype=torch.float64, requires_grad=True)
        rows = Rows(
            targets_T=torch.tensor(lesson.arrays["token_ids"], dtype=torch.int64),
            weights_T=row(weights_T),
            old_logprobs_T=row(old_T),
            advantages_T=row(lesson.advantages_T),
            ref_logprobs_T=row(lesson.arrays.get("ref_logprobs")),
            correction_T=row(correction_T),
            sequence_log_ratio_T=row(self.sequence_log_ratio(lesson, logp_T, old_T)),
        )
        objective = dataclasses.replace(self.kernel(), entropy_coef=0.0)
        rows.check(objective)
        return logp, token_loss(logp, None, rows, objective)

    def sequence_log_ratio(
        self, lesson: Lesson, logp_T: np.ndarray, old_T: np.ndarray
    ) -> np.ndarray | None:
        """The mean log-ratio of each row's episode, where the objective reads it."""
        return None

    def value_coefficients(self, lesson: Lesson, values_T: np.ndarray) -> tuple[np.ndarray, float]:
        """dvalues_T float32 and the critic's loss, value_coef inside."""
        self.check(lesson)
        w_T = self.value_coef * self.weights(lesson).astype(np.float64)
        old_T = lesson.arrays["values"].astype(np.float64)
        returns_T, v_T = lesson.arrays["returns"].astype(np.float64), values_T.astype(np.float64)
        move_T = v_T - old_T
        reach = np.inf if self.value_clip is None else self.value_clip
        near_T = move_T.clip(-reach, reach)
        free_T, held_T = (v_T - returns_T) ** 2, (old_T + near_T - returns_T) ** 2
        # where the held loss is the larger and its value is held, no gradient is left
        live_T = (free_T >= held_T) | (near_T == move_T)
        loss = float((w_T * np.maximum(free_T, held_T)).sum() / 2)
        return (w_T * np.where(live_T, v_T - returns_T, 0.0)).astype(np.float32), loss
