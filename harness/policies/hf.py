"""Any causal language model: a Hugging Face folder, or a hub name with a pinned revision."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from harness.policies.critic import with_critic
from harness.policies.model import Model, check_dtype, read_folder

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
COMMIT = re.compile(r"[0-9a-f]{40}")
FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


@dataclass(frozen=True)
class Hf:
    """The model at `name`. A branch or a tag can move, so a hub name needs a commit.

    Raises ValueError for what is neither, for a folder that is not a model, and for a hub that
    cannot be reached.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    name: str
    """A folder, or `owner/model` on the hub."""
    revision: str | None = None
    """Commit of the hub's repository, 40 hex digits."""
    dtype: str = "bfloat16"
    critic: bool = field(default=False, metadata={"identity": "unless default"})
    """Whether a value head of zeros is added to a model that has none."""

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if Path(self.name).expanduser().is_dir():
            return
        if not HUB_NAME.fullmatch(self.name):
            raise ValueError(
                f"model.name is {self.name!r}; it must be an existing folder or a hub name"
            )
        if self.revision is None or not COMMIT.fullmatch(self.revision):
            raise ValueError(
                f"model.revision is {self.revision!r} for the hub name {self.name!r}; "
                "give the commit, 40 hex digits, or an existing folder as model.name"
            )

    def initial(self) -> Model:
        folder = Path(self.name).expanduser()
        where = folder if folder.is_dir() else self._download()
        model = read_folder(where, dtype=self.dtype)
        return with_critic(model) if self.critic else model

    def _download(self) -> Path:
        from huggingface_hub import snapshot_download

        try:
            return Path(snapshot_download(self.name, revision=self.revision, allow_patterns=FILES))
        # a hub fails in many ways, all of them outside this program
        except Exception as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(
                f"{self.name} at {self.revision} cannot be had from the hub: {first}"
            ) from None
