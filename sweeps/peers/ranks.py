"""What ranks save and gain: memory of an update's state by rank, and rollouts on two ranks.

    python -m torch.distributed.run --standalone --nproc-per-node N sweeps/peers/ranks.py WHAT

WHAT is `memory STAGE [KEY=VALUE …]` (keys of DeepSpeed's zero_optimization): the most bytes, at any
module's forward or backward, of weights, gradients and optimizer state that a rank holds, storages
counted once and whole, DeepSpeed's reduce bucket among them. Or `rollout REPEATS [KEY=VALUE …]`:
seconds of the same rollout by rank 0 alone and by all ranks, in turn, each with one thread.
SmolLM2-135M in bfloat16. Prints one JSON line.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from typing import Any

import torch

from harness import ranks
from harness.compose import CONF
from harness.config import build
from harness.policies.model import load_tokenizer
from harness.policies.resident import Resident
from harness.round import Seed, State
from harness.update import shards
from harness.update.engine import initial_optimizer
from harness.world import ALONE, World


def experiment(*words: str) -> Any:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", ["+round=smollm2_arithmetic", "inference.threads=1",
                                 "update.threads=1", *words])  # fmt: skip
    container: Any = OmegaConf.to_container(cfg, resolve=True)
    return build(container, "ranks")


def held(engine: Any) -> dict[str, int]:
    """Bytes of the storages that an engine holds, by what they are for."""
    zero = engine.ds.optimizer
    parameters = list(engine.module.parameters())
    weights = [p.data for p in parameters] + [
        p.ds_tensor for p in parameters if hasattr(p, "ds_tensor")
    ]
    grads = [p.grad for p in parameters if p.grad is not None]
    grads += [getattr(zero, "grad_partitions_flat_buffer", None)]
    for parts in getattr(zero, "averaged_gradients", {}).values():
        grads += parts if isinstance(parts, list) else [parts]
    masters = shards.stepped(zero, engine.base)
    grads += [p.grad for p in masters]
    optimizer = [*masters, *(t for s in engine.base.state.values() for t in s.values())]
    seen: set[int] = set()

    def bytes_of(tensors: list[Any]) -> int:
        total = 0
        for tensor in tensors:
            if torch.is_tensor(tensor) and (at := tensor.untyped_storage().data_ptr()) not in seen:
                seen.add(at)
                total += tensor.untyped_storage().nbytes()
        return total

    sizes = {
        "weights": bytes_of(weights),
        "optimizer": bytes_of(optimizer),
        "gradients": bytes_of(grads),
    }
    return {**sizes, "total": sum(sizes.values())}


class Peak:
    """The largest sum seen at any module's forward or backward."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.most = engine, {"total": 0}
        for module in engine.module.modules():
            module.register_forward_hook(self)
            module.register_full_backward_pre_hook(self)

    def __call__(self, *_: Any) -> None:
        self.most = max(self.most, held(self.engine), key=lambda sizes: sizes["total"])


class Together(World):
    """Every rank runs the same lines by itself: nobody leads."""

    def call(self, duty: str, **_: Any) -> None:
        pass


def setting(world: World, *words: str) -> tuple[Any, Any, Any]:
    e = experiment(*words)
    model = e.model.initial()
    return e, model, Resident(world=world)


def memory(world: World, stage: str, *keys: str) -> dict[str, Any]:
    """A second update's peak on each rank, and its seconds."""
    e, model, resident = setting(
        world, *(f"++update.deepspeed.zero_optimization.{k}" for k in (f"stage={stage}", *keys))
    )
    seed, state = Seed("0" * 32), State(model, initial_optimizer(model))
    R = dataclasses.replace(e.maps.R, world=world)
    X = e.maps.S(seed)
    Z = R(resident.policy(model, e.inference.bind(load_tokenizer(model))), e.environment)(X, seed)
    G = e.maps.C(X, Z, e.maps.F(X, Z, seed), seed)
    U = dataclasses.replace(e.maps.U, resident=resident)
    U(state, G, seed)
    (engine,) = resident.caches.values()
    peak = Peak(engine)
    engine.forget()
    U(state, G, seed)
    return {"what": "memory", "stage": int(stage), "keys": " ".join(keys), "ranks": world.size,
            "bytes": max(world.tell(peak.most), key=lambda sizes: sizes["total"])}  # fmt: skip


def rollout(world: World, repeats: str, *words: str) -> dict[str, Any]:
    """The same episodes by rank 0 alone and by all ranks, in turn; the first turn warms up.

    Seconds of the wall, and of the processor of the busiest rank: what the wall would show if
    nothing else ran.
    """
    e, model, resident = setting(world, *words)
    inference = e.inference.bind(load_tokenizer(model))
    X, tokens = e.maps.S(Seed("0" * 32)), set()
    walls: dict[int, list[float]] = {1: [], world.size: []}
    busy: dict[int, list[float]] = {1: [], world.size: []}
    for _ in range(int(repeats) + 1):
        for where in (ALONE, world):
            world.tell("ready")
            began, worked = time.monotonic(), time.process_time()
            if where is world or world.leads:
                R = dataclasses.replace(e.maps.R, world=where)
                policy = resident.policy(model, dataclasses.replace(inference, ranks=where.size))
                tokens.add(int(R(policy, e.environment)(X, Seed("1" * 32)).is_action_T.sum()))
            wall = time.monotonic() - began
            spent = world.tell([wall, time.process_time() - worked])
            walls[where.size].append(spent[0][0])
            busy[where.size].append(max(cpu for _, cpu in spent))
    row: dict[str, Any] = {"what": "rollout", "keys": " ".join(words), "ranks": world.size}
    row["repeats"] = int(repeats)
    row["tokens"] = sorted(tokens)
    for name, times in (("wall", walls), ("cpu", busy)):
        alone, together = (statistics.median(times[n][1:]) for n in (1, world.size))
        row[name] = {"alone_s": round(alone, 3), "together_s": round(together, 3),
                     "ratio": round(alone / together, 3)}  # fmt: skip
    return row


def main() -> None:
    what, *rest = sys.argv[1:]
    world = ranks.join(ranks.count(None))
    if world.size > 1:
        world = Together(world.rank, world.size, world.group)
    row = {"memory": memory, "rollout": rollout}[what](world, *rest)
    if world.leads:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
