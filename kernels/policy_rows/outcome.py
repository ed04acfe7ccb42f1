"""Credit of whole episodes from their rewards, group by group: the part that a row can compute
itself.

Axes: P problems, G attempts a problem, B = P·G episodes, the G attempts of a problem side by side.
"""

import dataclasses
from typing import Literal

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Advantage of an episode from the rewards of its group.

        μ_i = mean over the group (`mean`), or over the group without i (`leave_one_out`)
        A_i = R_i − μ_i                     (scale `none`)
        A_i = (R_i − μ_i)/(std + ε)         (scale `std`, with n−1 in the denominator)

    Sums run over scored episodes; a reward of NaN marks an unscored one, whose A is 0. A group with
    fewer than two scored episodes, or with equal rewards, gives exactly 0.

    Source: mean and std: Shao et al., arXiv 2402.03300; mean alone: Liu et al., arXiv 2503.20783;
    leave-one-out: Ahmadian et al., arXiv 2402.14740.
    """

    rewards_B: Tensor
    group_size: int
    baseline: Literal["mean", "leave_one_out"] = "mean"
    scale: Literal["std", "none"] = "std"
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.rewards_B.numel() % self.group_size:
            raise ValueError(
                f"{self.rewards_B.numel()} episodes do not divide into groups of {self.group_size}"
            )

    def advantages(self) -> Tensor:
        """advantages_B, in the dtype of the rewards."""
        rewards_PG = self.rewards_B.view(-1, self.group_size)
        scored_PG = ~rewards_PG.isnan()
        count_P1 = scored_PG.sum(1, keepdim=True)
        # relative to a reward of the group, so that equal rewards give exact zeros
        origin_P1 = torch.where(scored_PG, rewards_PG, -torch.inf).amax(1, keepdim=True)
        shifted_PG = torch.where(scored_PG, rewards_PG - origin_P1, 0.0)
        mean_P1 = shifted_PG.sum(1, keepdim=True) / count_P1.clamp(min=1)
        centred_PG = torch.where(scored_PG, shifted_PG - mean_P1, 0.0)
        others_P1 = (count_P1 - 1).clamp(min=1)
        advantages_PG = centred_PG
        if self.baseline == "leave_one_out":
            advantages_PG = centred_PG * count_P1 / others_P1
        if self.scale == "std":
            deviation_P1 = (centred_PG.square().sum(1, keepdim=True) / others_P1).sqrt()
            advantages_PG = advantages_PG / (deviation_P1 + self.epsilon)
        return torch.where(count_P1 > 1, advantages_PG, 0.0).view(-1)
