"""A model of which only some tensors are trained.

    M = (base, {θ_i : i named})

The artifact is the base's identifier and the tensors that are named: a state stores these alone,
and s holds moments of nothing else. A critic's head, where the base has one, is trained too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from harness.policies.critic import head_parts
from harness.policies.model import Model, check_base


@dataclass(frozen=True)
class Partial:
    """The base with some of its tensors its own. Tied tensors have one name, their first.

    Raises ValueError for a pattern that no tensor of the base has.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    base: Any
    """The model whose other tensors stay as they are, as in conf/model."""
    train: tuple[str, ...]
    """Patterns of names of tensors, such as `model.layers.29.*`."""

    def __post_init__(self) -> None:
        check_base(self.base)
        if not self.train:
            raise ValueError("model.train is empty; it is patterns, such as [model.layers.29.*]")

    @property
    def critic(self) -> bool:
        """Whether the model has a value head."""
        return bool(getattr(self.base, "critic", False))

    def initial(self) -> Model:
        base = self.base.initial()
        tensors = head_parts(base.tensors)[1]
        for pattern in self.train:
            named = {n: t for n, t in base.tensors.items() if fnmatchcase(n, pattern)}
            if not named:
                first, last = min(base.tensors), max(base.tensors)
                raise ValueError(
                    f"model.train has {pattern!r}, which names no tensor of the base; they are "
                    f"called {first} … {last}"
                )
            tensors |= named
        return Model.on(base, tensors)
