"""A low-rank adapter on a model that stays as it is.

    M = (base, A, B)        y = W x + s·B(A x),   A ~ uniform(-1/√in, 1/√in) at first, B = 0

The artifact is the base's identifier and the adapter: a state stores A and B alone, and s holds
moments of nothing else. A critic's head, where the base has one, is trained too.

Source: LoRA, arXiv 2106.09685, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from harness.policies import critic
from harness.policies.adapter import inject, layers
from harness.policies.drawn import uniform
from harness.policies.model import Model, check_base, config_of


@dataclass(frozen=True)
class Lora:
    """The adapter before any training: it changes nothing that the base computes.

    Raises ValueError where peft is missing, and for targets that the base does not have.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    base: Any
    """The model that stays as it is, as in conf/model."""
    rank: int = 8
    alpha: float = 16.0
    """s·rank, or s·√rank where rslora."""
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    """Names of linear layers, by their ends; or `all-linear`, which leaves out the LM head."""
    rslora: bool = False
    """Rank-stabilised: s = alpha/√rank."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_base(self.base)
        if self.rank < 1:
            raise ValueError(f"model.rank is {self.rank}; it is at least 1")
        if not self.alpha > 0:
            raise ValueError(f"model.alpha is {self.alpha}; it is a positive number")
        if not self.targets or ("all-linear" in self.targets and len(self.targets) > 1):
            raise ValueError(
                f"model.targets is [{', '.join(self.targets)}]; it is names of layers, or "
                "[all-linear]"
            )

    @property
    def critic(self) -> bool:
        """Whether the model has a value head."""
        return bool(getattr(self.base, "critic", False))

    def initial(self) -> Model:
        import torch
        from transformers import AutoModelForCausalLM

        base = self.base.initial()
        every = self.targets == ("all-linear",)
        adapter: dict[str, Any] = {
            "rank": self.rank, "alpha": self.alpha, "rslora": self.rslora,
            "targets": "all-linear" if every else sorted(set(self.targets)),
        }  # fmt: skip
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(config_of(base))
            inject(module, adapter)
        found = layers(module)
        if every:
            adapter["targets"] = sorted({name.rpartition(".")[2] for name in found})
        tensors = critic.head_parts(base.tensors)[1]
        for name, layer in found.items():
            dtype = base.tensors[f"{name}.weight"].dtype
            A, B = (part["default"].weight for part in (layer.lora_A, layer.lora_B))
            drawn = uniform("lora", [self.seed, name], tuple(A.shape), A.shape[1] ** -0.5)
            tensors[f"{name}.lora_A.weight"] = torch.from_numpy(drawn).to(dtype)
            tensors[f"{name}.lora_B.weight"] = torch.zeros(B.shape, dtype=dtype)
        return Model.on(base, tensors, adapter)
