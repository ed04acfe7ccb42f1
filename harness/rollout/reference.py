"""A frozen reference policy: a reading that R records in Z.

    ref_logprobs_t = log π_ref(token t | its past)      of the family that the token was sampled in

It is what KL terms, KL in reward and DPO compare with. The batches are those of training, not of
decoding: where the reference is the policy, its numbers are the trainer's, and differ from the
sampled ones by the rounding of the engine alone. Its model is part of R's version.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from harness.forms import Trajectories
from harness.world import ALONE, World


class Scorer(Protocol):
    """A frozen model that scores tokens; `matrices` and `width` size it, for who counts FLOPs."""

    model: Any
    matrices: int
    width: int

    @property
    def id(self) -> str: ...

    def score(
        self, *packed: Any, micro_tokens: int, share: Callable[[int], range]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]: ...


@dataclass(frozen=True)
class Reference:
    """Whose log-probabilities are recorded. `bind` spells `source` as an identifier."""

    version: ClassVar[str] = "1"
    source: Any = "initial"
    """`initial`: the model that the lineage began with; the identifier of a model in the store
    (sha256:…); or a model of its own, as in conf/model."""
    micro_tokens: int = 4096
    """Padded tokens that are forwarded together."""
    scorer: Any = field(default=None, metadata={"identity": False}, compare=False)

    def __post_init__(self) -> None:
        named = isinstance(self.source, str)
        if named and self.source != "initial" and not self.source.startswith("sha256:"):
            raise ValueError(
                f"rollout.reference.source is {self.source!r}; it is initial, the identifier of a "
                "stored model (sha256:…), or a model of its own"
            )
        if not named and not hasattr(self.source, "initial"):
            raise ValueError(
                f"rollout.reference.source is {self.source!r}, which gives no model; name one with "
                "_target_, as in conf/model"
            )
        if self.micro_tokens < 1:
            raise ValueError(
                f"rollout.reference.micro_tokens is {self.micro_tokens}; it is at least 1"
            )

    def bind(self, scorer: Scorer) -> Reference:
        """The reference of a model that is there."""
        return replace(self, source=scorer.id, scorer=scorer)

    def record(self, Z: Trajectories, world: World = ALONE) -> Trajectories:
        """Z with ref_logprobs, and what it took. The batches are the same for any ranks."""
        if self.scorer is None:
            raise ValueError("the reference has no model yet; whoever runs the round binds one")
        logprobs_T, mine_T, work = self.scorer.score(
            Z.token_ids_T, Z.episode_offsets, Z.is_action_T, Z.arrays.get("threshold"),
            Z.meta["sampling"], Z.attempts, micro_tokens=self.micro_tokens, share=world.share,
        )  # fmt: skip
        logprobs_T = world.joined(logprobs_T, mine_T)
        size = {"matrices": self.scorer.matrices, "width": self.scorer.width}
        told = {"id": self.scorer.id, **size, **work}
        return Z.replace({"reference": told}, ref_logprobs=logprobs_T)
