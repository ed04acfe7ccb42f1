"""DeepSpeed as a function of (M, s): load a state, take steps, read what they made of it.

The engine stays in memory between rounds and is a cache: `current` names the state that its buffers
hold, and a state that is already there is not loaded. Before an update the buffers are copied, so
that a rejected proposal leaves nothing behind: `restore` puts back every bit.

Of a model on a base the engine trains, copies and tells the model's own tensors; the base's are
frozen.

M = cast(master): with float32 tensors the model is its own master, and s holds only the moments and
the step; with narrower tensors s holds the float32 masters too.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from harness import identity
from harness.forms import Artifact, torch_bytes
from harness.round import State
from harness.update import shards
from harness.update.learner import Learner
from harness.update.shards import MOMENTS, Part
from harness.update.undo import Undo


@dataclass(frozen=True)
class Held:
    """An artifact whose tensors live in the engine while it holds them, with its identifier."""

    kind: str
    meta: Mapping[str, Any]
    id: str
    key: tuple[str, str] = field(repr=False)
    engine: Any = field(repr=False, compare=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    base: Any = field(default=None, repr=False)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Views of the engine's buffers: read them before the next update. KeyError afterwards."""
        return self.engine.tensors(self.kind, self.key)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of the tensors: known without the ranks that hold them, and after the engine moved on."""
        return self.engine.whole_shapes[self.kind]

    @property
    def spread(self) -> bool:
        """Whether ranks hold parts of it: to put them together all have to be called."""
        return bool(self.engine.sharded[self.kind])

    def with_tensors(self, tensors: Mapping[str, Any]) -> Copied:
        """An artifact of the same metadata with tensors of its own."""
        return Copied(self.kind, self.meta, dict(tensors), self.files, self.base)


@dataclass(frozen=True)
class Copied(Artifact):
    """What an engine held, in tensors of its own."""

    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    base: Any = field(default=None, repr=False)

    def with_tensors(self, tensors: Mapping[str, Any]) -> Copied:
        return replace(self, tensors=dict(tensors))


def copied(state: State) -> State:
    """The same state in tensors that outlive the engine that holds it."""

    def own(artifact: Any) -> Any:
        # one that was promised may have been made here
        artifact = getattr(artifact, "real", artifact)
        if not isinstance(artifact, Held):
            return artifact
        return artifact.with_tensors({n: t.clone() for n, t in artifact.tensors.items()})

    return State(own(state.model), own(state.optimizer))


def initial_optimizer(model: Any) -> Artifact:
    """s_0: masters equal to the model, moments and step zero."""
    floats = {n: t for n, t in model.tensors.items() if t.is_floating_point()}
    own = all(t.dtype == torch.float32 for t in floats.values())
    tensors = {
        f"{kind}/{name}": torch.zeros(t.shape, dtype=torch.float32)
        for kind in MOMENTS
        for name, t in floats.items()
    }
    if not own:
        tensors |= {f"master/{name}": t.float() for name, t in floats.items()}
    return Artifact("optimizer", optimizer_meta(0, own), dict(sorted(tensors.items())))


def optimizer_meta(step: int, own_master: bool) -> dict[str, Any]:
    return {
        "algorithm": "adamw", "step": step, "master": "model" if own_master else "float32",
    }  # fmt: skip


class Engine:
    """One DeepSpeed engine on one resident module."""

    def __init__(self, resident: Any, model: Any, head: Any, settings: Any) -> None:
        self.resident = resident
        module = resident.load(model)
        self.module = module
        self.own_master = module.dtype == torch.float32
        self.meta = model.meta
        self.files, self.frozen = getattr(model, "files", {}), getattr(model, "base", None)
        places = resident.places.items()
        self.names: dict[str, Any] = {n: p for n, p in places if isinstance(p, torch.nn.Parameter)}
        self.shapes = {name: tuple(p.shape) for name, p in self.names.items()}
        for parameter in self.names.values():
            parameter.requires_grad_(True)
        if settings.checkpointing:
            checkpoint(module)
        join_world()
        import deepspeed

        self.learner = Learner(module, head)
        optimizer = torch.optim.AdamW(
            decay_groups(self.names.values(), settings.weight_decay), lr=settings.lr,
            betas=tuple(settings.betas), eps=settings.eps, fused=True,
        )  # fmt: skip
        self.world = resident.world
        self.ds, *_ = deepspeed.initialize(
            model=self.learner, optimizer=optimizer, config=settings.config(module.dtype)
        )
        self.stage = self.ds.zero_optimization_stage()
        if self.world.size == 1 and self.stage == 0:
            # to sum gradients over one rank DeepSpeed would copy all of them twice
            self.ds.enable_backward_allreduce = False
        self.base = self.ds.basic_optimizer
        self._start_moments()
        if self.stage == 3:
            # the head's weight is read by the learner, outside the module that owns it
            weight = module.get_output_embeddings().weight
            deepspeed.zero.register_external_parameter(self.learner, weight)
            resident.whole = self.whole
        many = self.world.size > 1
        split = any(hasattr(p, "_hp_mapping") for p in self.names.values())
        self.sharded = {"model": many and self.stage == 3, "optimizer": many and (
            split or self.stage == 3
        )}  # fmt: skip
        self.current: tuple[str, str] | None = None
        self.saved: tuple[str, str] | None = None
        self.step_count = self.saved_step = 0
        self.undo = Undo(settings.spill)
        self.gathered = False
        self.whole_shapes = {
            kind: {name: part.shape for name, part in self._content(kind).items()}
            for kind in ("model", "optimizer")
        }

    def _start_moments(self) -> None:
        """Moments exist from the beginning: torch makes them at the first step otherwise."""
        for p in shards.stepped(self.ds.optimizer, self.base):
            state = self.base.state[p]
            if "exp_avg" not in state:
                state["step"] = torch.tensor(0.0)
                state |= {name: torch.zeros_like(p, dtype=torch.float32) for name in MOMENTS}
        # ZeRO links a parameter to its part of the moments only after a first step
        link = getattr(self.ds.optimizer, "_lazy_init_hp_params_optimizer_state", None)
        if link is not None:
            link()

    @cached_property
    def buffers(self) -> list[Tensor]:
        """Everything that a step changes on this rank, but the step counter."""
        found = [p.ds_tensor.data if self.stage == 3 else p.data for p in self.names.values()]
        found += list(self.module.buffers())
        for p in shards.stepped(self.ds.optimizer, self.base):
            found += [p.data, *(self.base.state[p][name] for name in MOMENTS)]
        unique = {(t.data_ptr(), t.numel()): t for t in found if t.numel()}
        return list(unique.values())

    def _parts(self, kind: str) -> dict[str, Part]:
        """What this rank holds of M or of s, masters of a float32 model included."""
        if kind == "model":
            return shards.model_parts(self.resident.places, self.shapes, self.world.rank)
        zero = self.ds.optimizer
        return shards.optimizer_parts(self.names, self.shapes, zero, self.base, self.world.rank)

    def _content(self, kind: str) -> dict[str, Part]:
        """What this rank holds of what an artifact's identifier is over, sorted."""
        parts = self._parts(kind)
        if kind == "optimizer" and self.own_master:
            parts = {n: part for n, part in parts.items() if not n.startswith("master/")}
        return dict(sorted(parts.items()))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """ZeRO 3: every parameter whole on every rank for a while. Collective."""
        if self.gathered:
            yield
            return
        import deepspeed

        hooks = self.ds.optimizer.parameter_offload
        with deepspeed.zero.GatheredParameters(list(self.module.parameters())):
            # the hooks would free a parameter after the first module that used it
            for hook in [*hooks.forward_hooks, *hooks.backward_hooks]:
                hook.remove()
            hooks.forward_hooks, hooks.backward_hooks = [], []
            self.gathered = True
            try:
                yield
            finally:
                self.gathered = False
                hooks._register_deepspeed_module(hooks.module)

    def _refresh(self) -> None:
        """ZeRO 3 keeps small parameters whole beside their parts: make them what the parts say."""
        kept = getattr(self.ds.optimizer, "persistent_parameters", [])
        if kept:
            kept[0].partition(kept)
            kept[0].all_gather(kept)

    def load(self, state: State) -> None:
        """Make the buffers those of a state; nothing is done where they are already."""
        key = (state.model.id, state.optimizer.id)
        if key == self.current and self.resident.current == key[0]:
            return
        if key == self.saved and key != self.current:
            self.restore()
            return
        model: Any = state.model
        optimizer: Any = state.optimizer
        own, parts = self._parts("model"), self._parts("optimizer")
        if not self.own_master and optimizer.meta["master"] == "model":
            raise ValueError("the optimizer state has no masters, but the model is not float32")
        with torch.no_grad():
            for name, tensor in model.tensors.items():
                own[name].put(tensor)
                if self.own_master and name in self.names:
                    parts[f"master/{name}"].put(tensor)
            for name, tensor in optimizer.tensors.items():
                parts[name].put(tensor)
        self._refresh()
        self._set_step(int(optimizer.meta["step"]))
        self.current, self.resident.current = key, key[0]

    def forget(self) -> None:
        """Hold no state: the next one is loaded."""
        self.world.call("forget")
        self.current = self.saved = None

    def _set_step(self, step: int) -> None:
        self.step_count = step
        for state in self.base.state.values():
            if torch.is_tensor(state.get("step")):
                state["step"].fill_(float(step))
            else:
                state["step"] = step

    def save(self) -> None:
        """Copy the buffers: what `restore` puts back."""
        self.undo.save(self.buffers)
        self.saved, self.saved_step = self.current, self.step_count

    def hold(self, key: tuple[str, str]) -> None:
        """Hold the one or the other of the two states that are here: they change places."""
        if key == self.current:
            return
        assert key == self.saved, "a state that is neither held nor copied"
        self.undo.exchange(self.buffers)
        self._refresh()
        self.current, self.saved = self.saved, self.current
        step, self.saved_step = self.saved_step, self.step_count
        self._set_step(step)
        self.resident.current = key[0]

    def restore(self) -> None:
        """Put back the copied buffers, bit for bit."""
        self.undo.restore(self.buffers)
        self._refresh()
        self._set_step(self.saved_step)
        self.current = self.saved
        self.resident.current = self.saved[0] if self.saved else None

    def propose(self) -> State:
        """The state that the buffers hold now, under its identifiers."""
        ids = self.world.say([
            self._id("model", self.meta),
            self._id("optimizer", optimizer_meta(self.step_count, self.own_master)),
        ])  # fmt: skip
        self.current = (ids[0], ids[1])
        self.resident.current = ids[0]
        return self.held(self.current, self.step_count)

    def held(self, key: tuple[str, str], step: int) -> State:
        return State(
            Held("model", self.meta, key[0], key, self, self.files, self.frozen),
            Held("optimizer", optimizer_meta(step, self.own_master), key[1], key, self),
        )

    def _id(self, kind: str, meta: Mapping[str, Any]) -> str:
        """The identifier of what the buffers hold, on rank 0; gathered tensor by tensor."""
        parts = self._content(kind)
        if self.sharded[kind]:
            rows = shards.gathered(parts, self.world.group, self.world.leads)
            entries = [
                identity.entry(torch_bytes(*row)) for row in rows if self.world.leads
            ]  # fmt: skip
            return identity.id_of_entries(kind, meta, entries)
        if kind == "optimizer" and not self.world.leads:
            return ""
        views = {name: part.held.view(part.shape) for name, part in parts.items()}
        found = identity.content_id(kind, meta, [torch_bytes(n, t) for n, t in views.items()])
        if kind == "model":
            # every rank samples from its own copy
            self.world.agree("weights", found)
        return found

    def tensors(self, kind: str, key: tuple[str, str]) -> dict[str, Tensor]:
        """The tensors of a state that the engine still holds; KeyError where it has moved on.

        Whole ones on rank 0: the others are called to give their parts.
        """
        gone = self not in self.resident.caches.values()
        moved = key == self.current and self.resident.current != key[0]
        if key not in (self.current, self.saved) or gone or moved:
            raise KeyError(f"the engine no longer holds the state {key[0]}; read it from the store")
        parts = self._content(kind)
        if key != self.current:
            before = {n: self.undo.part(self.buffers, part.held) for n, part in parts.items()}
            parts = {name: part.moved(before[name]) for name, part in parts.items()}
        if not self.sharded[kind]:
            return {name: part.held.view(part.shape) for name, part in parts.items()}
        self.world.call("tensors", kind=kind, key=list(key))
        rows = shards.gathered(parts, self.world.group, self.world.leads)
        return {name: tensor for name, tensor in rows if self.world.leads}

    def backward(self, loss: Tensor, *, last: bool) -> None:
        self.ds.set_gradient_accumulation_boundary(last)
        # DeepSpeed averages over the ranks, and weights are over the whole batch
        self.ds.backward(loss * self.world.size if self.world.size > 1 else loss)

    def step(self, lr: float) -> float:
        """One optimizer step at a learning rate; the norm of the gradient before clipping."""
        for group in self.ds.optimizer.param_groups:
            group["lr"] = lr
        self.current = self.resident.current = None
        norm = self._own_norm() if self.ds.optimizer is self.base else None
        self.ds.step()
        self.step_count += 1
        if norm is None:
            norm = self.ds.get_global_grad_norm()
        return float(norm if norm is not None else float("nan"))

    def _own_norm(self) -> float:
        """Without ZeRO or a wrapper DeepSpeed keeps no norm: take it before the step clips."""
        grads = [p.grad for p in self.names.values() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0


def checkpoint(module: Any) -> None:
    """Keep only the inputs of layers, and compute the rest again backward: the same numbers.

    transformers does so in training mode only, which dropout must not notice.
    """
    dropped = [m.p for m in module.modules() if isinstance(m, torch.nn.Dropout)]
    named = [v for k, v in module.config.to_dict().items() if "dropout" in k or "pdrop" in k]
    if any(p for p in [*dropped, *named] if isinstance(p, float)):
        raise ValueError(
            "update.checkpointing is true, but this model drops activations at random when it "
            "trains; set its dropout to 0, or checkpointing to false"
        )
    module.gradient_checkpointing_enable({"use_reentrant": False})


def decay_groups(parameters: Iterable[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; biases, norms and other vectors do not."""
    every = list(parameters)
    matrices = [p for p in every if p.dim() >= 2]
    vectors = [p for p in every if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def join_world() -> None:
    """Join the ranks that were started; alone, be a world of one."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    from deepspeed import ops

    if torch.distributed.is_initialized():
        return
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        os.environ.update(alone, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    # DeepSpeed's reductions in shared memory need a compiler, and sum in another order than gloo:
    # without them a result does not depend on what is installed
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
