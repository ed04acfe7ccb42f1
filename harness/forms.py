"""The forms of data that maps exchange: X, Z, F, Γ, and the artifacts M and s.

Axes (suffix letters): P problems, G attempts a problem, B = P·G episodes (attempt g of problem p is
row p·G + g), T tokens of all episodes packed end to end, N turns of all episodes in order.

A form is canonical JSON (`meta`) and named arrays; its identifier is over that content, never over
a file. Arrays are made read-only: no map can write into its inputs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from harness import identity
from harness.identity import TensorBytes

DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""Names of element types: numpy's and torch's to safetensors'."""


class Stop(enum.IntEnum):
    """Why an episode ended. All but TERMINATED are limits or failures, and all are data."""

    TERMINATED = 0  # the environment said so
    TOKEN_BUDGET = 1  # the episode's allowance of sampled tokens is spent
    TURN_BUDGET = 2  # the episode's allowance of turns is spent
    TOOL_FAILURE = 3  # a tool failed in a way that ends the episode
    TIMEOUT = 4  # the watchdog fired: the round is open
    INVALID_ACTION = 5  # what the policy wrote is not an action here
    CONTEXT_FULL = 6  # the next observation does not fit the context


@dataclass(frozen=True)
class Call:
    """A tool call as the policy wrote it; `arguments` is None where it cannot be read."""

    name: str
    arguments: Mapping[str, Any] | None
    raw: str


@dataclass(frozen=True)
class Action:
    """One turn of the policy, parsed."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Event:
    """What an environment answers to an action."""

    messages: list[dict[str, Any]]
    """Chat messages to show next."""
    reward: float = 0.0
    done: bool = False
    stop: Stop | None = None
    """Why it ended, where it did not simply terminate."""
    key: str = ""
    """The environment's state key: turns with equal keys met the same state."""
    calls: tuple[dict[str, Any], ...] = ()
    """Tool calls for the record: name, arguments, result or error."""


def as_turn(action: Action, event: Event) -> dict[str, Any]:
    """The JSON of one turn:

    {"action": {"text", "calls": [{"name", "arguments", "raw"}]},
     "event":  {"messages", "reward", "done", "stop", "key", "calls"}}
    """
    calls = [{"name": c.name, "arguments": c.arguments, "raw": c.raw} for c in action.calls]
    answer = {
        "messages": event.messages, "reward": float(event.reward), "done": event.done,
        "stop": None if event.stop is None else event.stop.name, "key": event.key,
        "calls": event.calls,
    }  # fmt: skip
    return identity.plain({"action": {"text": action.text, "calls": calls}, "event": answer})


@dataclass(frozen=True)
class Packed:
    """An immutable value: canonical metadata and named arrays."""

    kind: ClassVar[str]
    meta: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in self.arrays.values():
            array.setflags(write=False)

    def tensor_bytes(self) -> list[TensorBytes]:
        rows = []
        for name, array in self.arrays.items():
            flat = np.ascontiguousarray(array)
            view = flat.reshape(-1).view(np.uint8).data if flat.size else memoryview(b"")
            rows.append((name, DTYPES[str(array.dtype)], tuple(array.shape), view))
        return rows

    @cached_property
    def id(self) -> str:
        return identity.content_id(self.kind, self.meta, self.tensor_bytes())

    def replace(self, meta: Mapping[str, Any], **arrays: np.ndarray) -> Self:
        """A new value with some metadata and arrays exchanged."""
        return type(self)({**self.meta, **meta}, {**self.arrays, **arrays})


class Instance(Packed):
    """X: `meta["problems"]` is a list of P JSON objects, shared by the task and its environment."""

    kind = "instance"

    @property
    def problems(self) -> list[Any]:
        return self.meta["problems"]


class Trajectories(Packed):
    """Z: P·G stopped episodes, packed.

    meta: `problems` P, `attempts` G, `sampling` (temperature, top_k, top_p, min_p: the family
    that logprobs belong to), `episodes` (B objects with `turns`: action and observation texts, tool
    calls, the environment's state key), `exogenous` (η: what the round read from outside; empty if
    closed), `reference` (only with ref_logprobs: `id` of the reference policy's model, its
    `matrices` and `width` as `harness.accounting.flops` counts them, the `tokens` that it was run
    on, and how many they `attended` to).

    arrays: token_ids_T int32; is_action_T bool (sampled by the policy); logprobs_T float32 (of the
    tempered, truncated distribution that was sampled from; 0 where not an action); threshold_T
    float32 (only with truncated sampling: v was kept iff x_v/τ - max x/τ >= threshold);
    episode_offsets int64 [B+1]; stop uint8 [B]; turn_episode_N int32, turn_start_N, turn_end_N
    int64 (the action's span in T), turn_rewards_N float64 (environment's). Where present, float32
    and 0 where not an action: ref_logprobs_T (of a frozen reference policy, in the same tempered,
    truncated family), values_T (the critic's value of the state that the token was sampled in),
    target_logprobs_T (of the policy that is to learn, where an older one sampled).
    """

    kind = "trajectories"

    @property
    def token_ids_T(self) -> np.ndarray:
        return self.arrays["token_ids"]

    @property
    def is_action_T(self) -> np.ndarray:
        return self.arrays["is_action"]

    @property
    def logprobs_T(self) -> np.ndarray:
        return self.arrays["logprobs"]

    @property
    def episode_offsets(self) -> np.ndarray:
        return self.arrays["episode_offsets"]

    @property
    def stop_B(self) -> np.ndarray:
        return self.arrays["stop"]

    @property
    def problems(self) -> int:
        return self.meta["problems"]

    @property
    def attempts(self) -> int:
        return self.meta["attempts"]

    @property
    def episodes(self) -> list[Any]:
        return self.meta["episodes"]


class Scores(Packed):
    """F: rewards_B float64 (NaN: unscorable), optional turn_rewards_N, optional components_BK.

    meta: `components`, the K names.
    """

    kind = "feedback"

    @property
    def rewards_B(self) -> np.ndarray:
        return self.arrays["rewards"]


class Lesson(Packed):
    """Γ: all that training needs.

    meta: `problems`, `attempts`, `sampling` (as in Z), `use` ("policy", "supervised" or "pairs"),
    `pairs` (rows [chosen, rejected] of episodes, for "pairs"; else empty), `unscorable` (episodes
    without a reward: they teach nothing and no denominator counts them), `statistics` (of rewards
    and groups, for people).

    arrays: token_ids_T, is_action_T, episode_offsets as in Z; logprobs_T (the behaviour's),
    advantages_T float32 (0 where not an action); threshold_T, ref_logprobs_T as in Z, where it has
    them; values_T as in Z and returns_T (what they should have been: float32, 0 where not an
    action), where the credit is of values.
    """

    kind = "credit"

    @property
    def advantages_T(self) -> np.ndarray:
        return self.arrays["advantages"]


@dataclass(frozen=True)
class Document(Packed):
    """A value that is canonical JSON alone: inference settings, a configuration."""

    kind: ClassVar[str] = "document"


@dataclass(frozen=True)
class Inference(Packed):
    """ι: every serializer, decoding, tool and stopping setting, and every knob that we set."""

    kind: ClassVar[str] = "inference"


def torch_bytes(name: str, tensor: Any) -> TensorBytes:
    """The bytes of a torch tensor, without a copy where it is contiguous on the host."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    view = memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")
    dtype = DTYPES[str(tensor.dtype).removeprefix("torch.")]
    return name, dtype, tuple(tensor.shape), view


@dataclass(frozen=True)
class Artifact:
    """M or s: named torch tensors and canonical metadata, immutable by contract.

    A model's meta: `architecture` (the configuration without paths and library versions),
    `tokenizer` (an identifier). An optimizer state's meta: `step`, `algorithm`, and whether the
    model is its own master.
    """

    kind: str
    meta: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @cached_property
    def id(self) -> str:
        rows = [torch_bytes(name, tensor) for name, tensor in self.tensors.items()]
        return identity.content_id(self.kind, self.meta, rows)
