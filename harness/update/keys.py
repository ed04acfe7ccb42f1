"""DeepSpeed's own keys: which are the harness's, which keep state, and which there are at all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OWNED = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
    "managed_gradient_accumulation", "optimizer", "scheduler", "fp16", "bf16", "amp",
    "gradient_clipping", "steps_per_print", "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer", "checkpoint", "data_efficiency", "curriculum_learning",
)  # fmt: skip
"""Those that the harness owns."""
STATEFUL = ("progressive_layer_drop", "eigenvalue", "quantize_training", "compression_training")
"""Those that keep state outside (M, s)."""
FREE = (
    "activation_checkpointing", "aio", "autotuning", "comet", "comms_logger",
    "communication_data_type", "compile", "csv_monitor", "data_types", "dataloader_drop_last",
    "datastates_ckpt", "disable_allgather", "disable_python_gc", "dump_state", "elasticity",
    "expert_parallel", "flops_profiler", "gradient_allreduce_op", "gradient_predivide_factor",
    "graph_harvesting", "hybrid_engine", "log_level", "memory_breakdown", "nebula", "pipeline",
    "prescale_gradients", "seq_parallel_communication_data_type", "sequence_parallel_size",
    "sparse_attention", "sparse_gradients", "tensor_parallel", "tensorboard", "timers",
    "torch_autocast", "use_data_before_expert_parallelism", "use_node_local_storage",
    "vocabulary_size", "wall_clock_breakdown", "wandb", "weight_quantization", "zenflow",
    "zero_optimization",
)  # fmt: skip
"""The others that DeepSpeed reads at the top of its configuration; it passes over any further one
without a word."""


def check(keys: Iterable[str]) -> None:
    """ValueError for a key that may not be given, or that there is not."""
    for key in keys:
        if key in OWNED:
            raise ValueError(
                f"update.deepspeed.{key} belongs to the harness; use update's own keys"
            )
        if key in STATEFUL:
            raise ValueError(f"update.deepspeed.{key} keeps state outside (M, s); leave it out")
        if key not in FREE:
            near = difflib.get_close_matches(key, FREE, n=1, cutoff=0.5)
            rest = f"did you mean {near[0]}?" if near else f"there are {', '.join(FREE)}"
            raise ValueError(f"update.deepspeed.{key} is no key of DeepSpeed's; {rest}")
