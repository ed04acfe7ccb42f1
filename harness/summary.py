"""What is shown of a round: its settings as flat params, and the numbers people look at first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.config import Experiment
from harness.forms import Stop
from harness.round import Record


def shown(experiment: Experiment) -> dict[str, str]:
    """Settings as flat params, for comparing arms: numbers and words of the configuration."""
    flat: dict[str, str] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, Mapping):
            for key, value in node.items():
                walk(value, f"{path}.{key}" if path else str(key))
        elif node is not None and not isinstance(node, list):
            flat[f"config.{path}".replace("._target_", ".name")] = str(node)

    for group in ("task", "sampler", "environment", "model", "inference", "rollout", "feedback",
                  "credit", "update", "seeds"):  # fmt: skip
        walk(experiment.document[group], group)
    return {k: v for k, v in flat.items() if len(v) <= 250}


def summary_of(record: Record) -> dict[str, float]:
    """Numbers that people look at first: functions of the record."""
    rewards = record.F.rewards_B[np.isfinite(record.F.rewards_B)]
    Z = record.Z
    lengths = np.diff(Z.episode_offsets)
    sampled = (
        np.add.reduceat(Z.is_action_T, Z.episode_offsets[:-1]) if len(Z.token_ids_T) else lengths
    )
    metrics: dict[str, float] = {
        "reward/mean": float(rewards.mean()) if len(rewards) else 0.0,
        "reward/std": float(rewards.std()) if len(rewards) else 0.0,
        "reward/unscorable": float(len(record.F.rewards_B) - len(rewards)),
        "rollout/length_mean": float(sampled.mean()) if len(sampled) else 0.0,
        "rollout/turns_mean": len(Z.arrays["turn_episode"]) / max(len(Z.stop_B), 1),
    }
    for stop in Stop:
        metrics[f"rollout/stop/{stop.name.lower()}"] = float((Z.stop_B == stop).mean())
    return metrics | dict(record.proposal.report["metrics"])
