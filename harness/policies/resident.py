"""The in-process engine: a module in memory, and policies that decode with it.

A resident module is a cache keyed by the identifier of the weights it holds: it can never change a
value. All live rows decode together; batches are composed by counts, never by wall time, and a
token is a function of the logits, the episode's key and its position, so that the same stamp on the
same platform gives the same tokens.

Keys and values lie in slots that all rows share: a forward writes its tokens into the next slots of
the rows that go on, and a mask says which slots of a row hold something. Rows that wait, having
ended their turn, lie behind those that go on and are not computed. Axes: B rows, A of them that go
on, Q new tokens, S slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from harness.kernels.philox_sample import sample
from harness.policies.critic import has_critic
from harness.policies.inference import Inference
from harness.policies.model import build_module, load_tokenizer, places_of
from harness.policies.thin import linear, thinned
from harness.policies.trees import attention_mask, computes_trees
from harness.round import Stamp
from harness.world import ALONE, World


@dataclass(frozen=True)
class Head:
    """The LM head of a module: logits = softcap(scale · (h Wᵀ + b))."""

    weight: Tensor
    bias: Tensor | None
    softcap: float | None
    scale: float


def head_of(module: Any) -> Head:
    """Read a head from a causal language model of transformers."""
    layer, config = module.get_output_embeddings(), module.config
    scale = float(getattr(config, "logit_scale", None) or 1.0)
    scale /= float(getattr(config, "logits_scaling", None) or 1.0)
    softcap = getattr(config, "final_logit_softcapping", None)
    return Head(layer.weight, getattr(layer, "bias", None), softcap, scale)


class SlotLayer(DynamicLayer):
    """Keys and values in a buffer that doubles, so that a step writes and does not copy."""

    keys: Any
    values: Any
    length = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        start, self.length = self.length, self.length + key_states.shape[-2]
        if self.length > self.keys.shape[-2]:
            self.keys = _grown(self.keys, start, self.length)
            self.values = _grown(self.values, start, self.length)
        # the first rows go on, the others wait
        going = slice(key_states.shape[0])
        self.keys[going, ..., start : self.length, :] = key_states
        self.values[going, ..., start : self.length, :] = value_states
        return self.keys[going, ..., : self.length, :], self.values[going, ..., : self.length, :]

    def get_seq_length(self) -> int:
        return self.length

    def select(self, rows: Tensor) -> None:
        self.keys = self.keys[..., : self.length, :].index_select(0, rows)
        self.values = self.values[..., : self.length, :].index_select(0, rows)


def _grown(buffer: Tensor, used: int, needed: int) -> Tensor:
    shape = list(buffer.shape)
    shape[-2] = max(2 * buffer.shape[-2], needed + 16)
    # slots that a row did not write are masked, by a weight of 0: they have to be finite
    grown = buffer.new_zeros(shape)
    grown[..., :used, :] = buffer[..., :used, :]
    return grown


@dataclass
class Resident:
    """One module in memory, and whose weights it holds."""

    module: Any = None
    current: str | None = None
    """Identifier of the model whose weights the module holds."""
    meta: Any = None
    """Of the model that the module was built from."""
    names: tuple[str, ...] = ()
    """Of the model's own tensors: the module's others, of a base, stay as they are."""
    masked: bool = True
    """Whether the module takes a mask of who attends to whom."""
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Makes every parameter whole for a while: an updater that shards them sets it."""
    caches: dict[str, Any] = field(default_factory=dict)
    """What users of the module keep beside it, by name; dropped with the module."""
    world: World = ALONE
    """The ranks that hold such a module together."""
    settle: Callable[[], None] = lambda: None
    """Called before what is in memory changes: somebody may be reading it."""

    def load(self, model: Any) -> Any:
        """The module with this model's weights."""
        if self.current != model.id:
            self.settle()
        # a module that an engine trains has its hooks, and may have its parameters shared out
        taken = bool(self.caches) and self.current != model.id
        if self.module is None or self.meta != model.meta or taken:
            own = {name: tensor.clone() for name, tensor in model.tensors.items()}
            self.drop()
            # every model has the eager path; `attend` chooses another
            self.module = thinned(build_module(model.with_tensors(own), attention="eager"))
            self.masked = computes_trees(self.module)
            self.meta, self.names, self.current = model.meta, tuple(model.tensors), model.id
        elif self.current != model.id:
            with torch.no_grad():
                places = self.places
                for name, tensor in model.tensors.items():
                    places[name].copy_(tensor)
            self.current = model.id
        return self.module

    @property
    def trees(self) -> bool:
        """Whether prefixes can be shared and keys cached: flash attention takes no mask."""
        return self.masked and "flash" not in self.module.config._attn_implementation

    @property
    def places(self) -> dict[str, Any]:
        """Where the module keeps the model's own tensors."""
        return places_of(self.module, self.meta, self.names)

    def attend(self, attention: str, setting: str) -> None:
        """Compute attention in this way from now on; setting: whose wish it is, for the refusal."""
        if self.module.config._attn_implementation == attention:
            return
        try:
            self.module.set_attn_implementation(attention)
        # what transformers raises for a model that cannot is of several kinds
        except (ValueError, ImportError):
            kind = self.module.config.model_type
            raise ValueError(
                f"{setting} is {attention}, which {kind} models or this machine lack; it must be "
                "another, such as eager"
            ) from None

    @staticmethod
    def knobs(threads: int, deterministic: bool) -> None:
        """Set what torch keeps for the whole process: every map that computes sets it anew."""
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        # buffers that are about to be written need no filling
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def drop(self) -> None:
        """Hold nothing: the next model gets a module of its own."""
        self.caches.clear()
        self.module = self.current = self.meta = None
        self.names = ()
        self.whole = nullcontext

    def head(self) -> Head:
        """The LM head of the module in memory."""
        return head_of(self.module)

    def policy(self, model: Any, inference: Inference) -> ResidentPolicy:
        """π_ν on this module. Raises ValueError where the context is more than the model has."""
        check_context(model.meta["architecture"], inference.context)
        tokenizer = load_tokenizer(model)
        return ResidentPolicy(self, model, inference, tokenizer)


def check_context(architecture: Any, context: int) -> None:
    """One sentence where a model has fewer positions, or layers that attend over a window only."""
    text = architecture.get("text_config", architecture)
    positions = text.get("max_position_embeddings", text.get("n_positions"))
    if positions is not None and context > positions:
        raise ValueError(
            f"inference.context is {context}, and this model has {positions} positions; it must "
            f"be at most {positions}"
        )
    kinds, window = text.get("layer_types"), text.get("sliding_window")
    if window is not None and context > window and (not kinds or "sliding_attention" in kinds):
        raise ValueError(
            f"inference.context is {context}, and layers of this model attend over a window of "
            f"{window}, which this engine does not cut; it must be at most {window}"
        )


@dataclass(frozen=True)
class ResidentPolicy:
    """A policy that acts on tokens; it sees nothing but the tokens it is given."""

    resident: Resident
    model: Any
    inference: Inference
    tokenizer: Any
    exact = True
    """The engine is bit-reproducible on one platform."""

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.model.id, self.inference.id)

    def begin(self, messages: Sequence[Any], tools: Sequence[Any]) -> list[int]:
        return self.inference.serializer.begin(self.tokenizer, messages, tools)

    def extend(self, action_ids: Sequence[int], messages: Sequence[Any]) -> list[int]:
        return self.inference.serializer.extend(self.tokenizer, action_ids, messages)

    def parse(self, action_ids: Sequence[int]) -> Any:
        return self.inference.serializer.parse(self.tokenizer, action_ids)

    @property
    def critic(self) -> bool:
        """Whether its sessions give values."""
        return has_critic(self.model.meta["architecture"])

    def whole(self) -> AbstractContextManager[Any]:
        """Keeps every parameter whole while a rollout lasts."""
        self.resident.load(self.model)
        return self.resident.whole()

    @property
    def stops(self) -> tuple[int, ...]:
        return tuple(self.inference.serializer.stops(self.tokenizer))

    def open(self, prompts: Sequence[Sequence[int]], rows: Sequence[int]) -> Session:
        """Prefill each prompt once, and give row i the cache of prompt rows[i]."""
        self.resident.knobs(self.inference.threads, self.inference.deterministic)
        module = self.resident.load(self.model)
        self.resident.attend(self.inference.attention, "inference.attention")
        if self.resident.trees:
            return Session(module, self.inference, prompts, rows, self.resident.whole)
        from harness.policies.uncached import Uncached

        return Uncached(module, self.inference, prompts, rows, self.resident.whole)


class Session:
    """Rows that decode together."""

    def __init__(
        self, module: Any, inference: Inference, prompts: Sequence[Sequence[int]],
        rows: Sequence[int], whole: Callable[[], AbstractContextManager[Any]],
    ) -> None:  # fmt: skip
        self.module, self.inference, self.whole = module, inference, whole
        self.device = next(module.parameters()).device
        self.head = head_of(module)
        self.value_head = getattr(module, "value_head", None)
        self.values_A: Tensor | None = None
        self.logits_AV: Tensor
        self.order: list[int] = list(range(len(prompts)))
        """The row that lies at each place."""
        self._begin(prompts)
        index = torch.as_tensor(rows, device=self.device)
        self.logits_AV = self.logits_AV.index_select(0, index)
        if self.values_A is not None:
            self.values_A = self.values_A[index]
        self.select(rows)

    def _begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Run each prompt once."""
        self.layers = self.module.config.get_text_config().num_hidden_layers
        self.cache = self._cache()
        self.mask_BS = torch.zeros(len(prompts), 0, dtype=torch.bool, device=self.device)
        self.length_B = torch.zeros(len(prompts), dtype=torch.long, device=self.device)
        self.logits_AV = self._prefill(prompts)

    def _cache(self) -> Any:
        return Cache(layers=[SlotLayer() for _ in range(self.layers)])

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Prompts in groups of `prefill_rows`; their caches are joined row by row."""
        size = self.inference.prefill_rows
        if len(prompts) <= size:
            return self.feed(prompts)
        parts = []
        for start in range(0, len(prompts), size):
            group = prompts[start : start + size]
            part = Session(self.module, self.inference, group, list(range(len(group))), self.whole)
            parts.append(part)
        width = max(part.mask_BS.shape[1] for part in parts)
        for index, layer in enumerate(self.cache.layers):
            held = [part.cache.layers[index] for part in parts]
            layer.keys = torch.cat([_padded(p.keys, p.length, width) for p in held])
            layer.values = torch.cat([_padded(p.values, p.length, width) for p in held])
            layer.length, layer.is_initialized = width, True
        pads = [width - part.mask_BS.shape[1] for part in parts]
        self.mask_BS = torch.cat(
            [torch.nn.functional.pad(p.mask_BS, (0, n)) for p, n in zip(parts, pads, strict=True)]
        )
        self.length_B = torch.cat([part.length_B for part in parts])
        if self.value_head is not None:
            self.values_A = torch.cat([p.values_A for p in parts if p.values_A is not None])
        return torch.cat([part.logits_AV for part in parts])

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; a row may be taken more than once."""
        self._put(rows)
        self.order = list(range(len(rows)))

    def _put(self, order: Sequence[int]) -> None:
        places = [self.order.index(row) for row in order]
        if places != list(range(len(self.order))):
            self._take(places)

    def _going(self, tokens: Sequence[Sequence[int]]) -> list[int]:
        """The rows that get tokens, once they lie before the others."""
        going = [row for row, new in enumerate(tokens) if new]
        order = going + [row for row, new in enumerate(tokens) if not new]
        self._put(order)
        self.order = order
        return going

    def _take(self, places: Sequence[int]) -> None:
        index = torch.as_tensor(places, device=self.device)
        for layer in self.cache.layers:
            layer.select(index)
        self.mask_BS, self.length_B = self.mask_BS[index], self.length_B[index]

    @torch.no_grad()
    def feed(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens to each row, and give the next token's logits [A, V] of those that got any:
        the others wait and are not computed."""
        going = self._going(tokens)
        active = slice(len(going))
        counts = [len(tokens[row]) for row in going]
        width = max(counts)
        padded = [[*tokens[row], *([0] * (width - len(tokens[row])))] for row in going]
        ids_AQ = torch.tensor(padded, device=self.device)
        count_A = torch.tensor(counts, device=self.device)
        offsets_Q = torch.arange(width, device=self.device)
        # padding takes the position of the row's last token: a table of positions has an end
        last_A = count_A - 1
        positions_AQ = self.length_B[active, None] + torch.minimum(offsets_Q, last_A[:, None])
        slots = self.mask_BS.shape[1]
        self.mask_BS = torch.nn.functional.pad(self.mask_BS, (0, width))
        self.mask_BS[active, slots:] = offsets_Q < count_A[:, None]
        mask_AQS = self.mask_BS[active, None, :].expand(-1, width, -1).clone()
        mask_AQS[:, :, slots:] &= offsets_Q[:, None] >= offsets_Q
        # a padded query attends to itself, so that no row of the softmax is empty
        mask_AQS[:, offsets_Q, slots + offsets_Q] = True
        with self.whole():
            out = self.module.base_model(
                input_ids=ids_AQ, attention_mask=attention_mask(self.module, mask_AQS[:, None]),
                position_ids=positions_AQ, cache=self.cache, use_cache=True,
            )  # fmt: skip
            hidden_AH = out.last_hidden_state[torch.arange(len(going)), last_A]
            self.logits_AV = self._logits(hidden_AH)
            if self.value_head is not None:
                self.values_A = self.value_head(hidden_AH)[:, 0].float()
        self.length_B[active] += count_A
        return self.logits_AV

    def _logits(self, hidden_AH: Tensor) -> Tensor:
        head = self.head
        logits = linear(hidden_AH, head.weight, head.bias).float()
        if head.scale != 1.0:
            logits = logits * head.scale
        if head.softcap is not None:
            logits = head.softcap * torch.tanh(logits / head.softcap)
        return logits

    def values(self, rows: Sequence[int]) -> list[float]:
        """The critic's values of the states that some rows act in next."""
        assert self.values_A is not None
        return self.values_A[self._index(rows)].tolist()

    def _index(self, rows: Sequence[int]) -> Tensor:
        return torch.tensor([self.order.index(row) for row in rows], device=self.device)

    def sample(
        self, rows: Sequence[int], keys: Sequence[int], positions: Sequence[int],
        reflected: Sequence[bool] | None,
    ) -> tuple[list[int], list[float], list[float]]:  # fmt: skip
        """Tokens, their log-probabilities and thresholds for some of the rows that got tokens last,
        by their keys."""
        whole = list(rows) == self.order[: len(self.logits_AV)]
        logits = self.logits_AV if whole else self.logits_AV.index_select(0, self._index(rows))
        signed = [key - (1 << 64) if key >> 63 else key for key in keys]
        token_B, logprob_B, threshold_B, _ = sample(
            logits, torch.tensor(signed, device=self.device),
            torch.tensor(positions, device=self.device),
            temperature=self.inference.temperature, top_k=self.inference.top_k,
            top_p=self.inference.top_p, min_p=self.inference.min_p,
            antithetic_B=None if reflected is None
            else torch.tensor(reflected, device=self.device),
        )  # fmt: skip
        return token_B.tolist(), logprob_B.tolist(), threshold_B.tolist()


def _padded(buffer: Tensor, length: int, width: int) -> Tensor:
    return torch.nn.functional.pad(buffer[..., :length, :], (0, 0, 0, width - length))
