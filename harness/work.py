"""How much work a batch of episodes is: counts, read from Z alone.

A token at place t attends to t tokens. The attempts at a problem share the prefill of its prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.forms import Trajectories


@dataclass(frozen=True)
class Work:
    """Counts of a rollout."""

    prompt: int
    """Tokens before the first action, each distinct prompt of a problem once."""
    sampled: int
    """Tokens that the policy sampled."""
    observed: int
    """Tokens that observations and turn headers appended after the prompt."""
    attended: int
    """How many tokens all of those attend to."""
    packed: int
    """How many tokens those of the packed batch attend to, every prompt counted in every episode.
    """
    steps: int
    """Turns that the environment answered."""
    calls: int
    """Tool calls in them."""

    @property
    def tokens(self) -> int:
        """That the model ran on."""
        return self.prompt + self.sampled + self.observed


def work_of(Z: Trajectories) -> Work:
    """The counts of some episodes."""
    prompts = observed = attended = packed = 0
    known: set[tuple[int, bytes]] = set()
    for b, start in enumerate(Z.episode_offsets[:-1]):
        end = Z.episode_offsets[b + 1]
        action = Z.is_action_T[start:end]
        length = int(end - start)
        prompt = int(np.argmax(action)) if action.any() else length
        prefix = (b // max(Z.attempts, 1), Z.token_ids_T[start : start + prompt].tobytes())
        if prefix not in known:
            known.add(prefix)
            prompts, attended = prompts + prompt, attended + seen(0, prompt)
        observed += length - prompt - int(action.sum())
        attended += seen(prompt, length)
        packed += seen(0, length)
    return Work(
        prompt=prompts, sampled=int(Z.is_action_T.sum()), observed=observed, attended=attended,
        packed=packed, steps=len(Z.arrays["turn_episode"]),
        calls=sum(len(turn["event"]["calls"]) for e in Z.episodes for turn in e["turns"]),
    )  # fmt: skip


def most(inference: Any, episodes: int) -> dict[str, int]:
    """The most that so many episodes cost, of the dimensions that inference settings bound."""
    tokens = min(inference.max_episode_tokens, inference.max_turns * inference.max_turn_tokens)
    return {
        "tokens/sampled": episodes * tokens, "environment/steps": episodes * inference.max_turns,
    }  # fmt: skip


def seen(start: int, end: int) -> int:
    """Σ of t for the tokens at places start+1 … end: how many tokens they attend to in all."""
    return (end * (end + 1) - start * (start + 1)) // 2
