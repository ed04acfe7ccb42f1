"""Compile every kernel in every configuration for GPUs that are not here, and print a table.

    python tests/kernels/aot.py            rows of CSV: what ptxas made of each kernel

The arguments are those of the real launches: the host functions run on CPU tensors with the kernel
replaced by a recorder. Must run without TRITON_INTERPRET.
"""

import csv
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.kernels.credit_objective import Credit, Packed
from harness.kernels.credit_objective import fused as credit
from harness.kernels.philox_sample import fused as philox
from harness.kernels.policy_rows import REPORT, Objective, Outcome, Rows
from harness.kernels.policy_rows import fused as rows

ARCHITECTURES = (80, 90, 100)
COLUMNS = (
    "triton",
    "kernel",
    "configuration",
    "arch",
    "registers",
    "shared",
    "spills",
    "wide_loads",
    "float64",
)
TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int8: "*i8",
}


class Recorder:
    """Stands in for a kernel, and keeps what it is launched with."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.launch: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def keep(*values: Any, **named: Any) -> None:
            self.launch = (values, named)

        return keep


def configurations() -> Iterator[tuple[str, Any, str, Callable[[], Any]]]:
    """(kernel's name, its module, configuration, a call that launches it)."""
    large, small, count = 151936, 50257, 4
    line = torch.zeros(count)
    full = Rows(
        torch.zeros(count, dtype=torch.int64),
        weights_T=line,
        old_logprobs_T=line,
        advantages_T=line,
        ref_logprobs_T=line,
        correction_T=line,
        sequence_log_ratio_T=line,
        threshold_T=line,
    )
    plain = dataclasses.replace(full, ref_logprobs_T=None, correction_T=None, threshold_T=None)
    outcome = dataclasses.replace(
        full,
        advantages_T=None,
        episode_T=torch.zeros(count, dtype=torch.int64),
        outcome=Outcome(line, 2, "leave_one_out"),
    )
    given = Rows(full.targets_T, dlogp_T=line, dentropy_T=line, threshold_T=line)
    kl = {"kl_kind": "k3", "kl_coef": 0.1}

    def policy(
        which: Rows,
        objective: Objective | None,
        vocabulary: int = large,
        dtype: torch.dtype = torch.bfloat16,
        **settings: Any,
    ) -> Callable[[], Any]:
        named = {"gradient": True, "entropy": False, "temperature": 0.7} | settings
        logits = torch.empty(count, vocabulary, dtype=dtype)
        report = torch.empty(len(REPORT), count)
        return lambda: rows.policy_rows_(logits, which, report, objective=objective, **named)

    for name, launch in {
        "ppo": policy(plain, Objective("ppo")),
        "ppo,fp32": policy(plain, Objective("ppo"), dtype=torch.float32),
        "ppo,odd vocabulary": policy(plain, Objective("ppo"), small),
        "ppo,small vocabulary": policy(plain, Objective("ppo"), 256),
        "everything": policy(
            outcome, Objective("ppo", dual_clip=3.0, entropy_coef=0.1, **kl), softcap=30.0
        ),
        "cispo,k3": policy(full, Objective("cispo", **kl)),
        "gspo_token": policy(plain, Objective("gspo_token")),
        "reinforce,entropy": policy(plain, Objective("reinforce", entropy_coef=0.1)),
        "ce": policy(plain, Objective("ce")),
        "given": policy(given, None),
        "score": policy(Rows(full.targets_T), None, gradient=False, entropy=True),
    }.items():
        yield "policy_rows_kernel", rows, name, launch

    offsets = torch.tensor([0, 1, 2, 3, 4])
    base = Packed(
        offsets,
        torch.ones(count, dtype=torch.bool),
        *[line] * 2,
        bootstrap_B=line,
        discount_T=line,
        logp_T=line,
        old_logprobs_T=line,
        ref_logprobs_T=line,
        correction_T=line,
        weights_T=line,
    )
    group = dataclasses.replace(base, outcome=Outcome(line, 2))
    for name, packed, recursion, objective in (
        ("returns", base, Credit("returns"), None),
        ("gae,ppo,k3", base, Credit("gae"), Objective("ppo", dual_clip=3.0, **kl)),
        ("vtrace,cispo", base, Credit("vtrace"), Objective("cispo")),
        ("outcome,gspo_token", group, Credit("outcome"), Objective("gspo_token")),
    ):
        yield (
            "credit_objective_kernel",
            credit,
            name,
            lambda p=packed, c=recursion, o=objective: credit.credit_objective(p, c, o),
        )

    key = torch.zeros(count, dtype=torch.int64)
    for name, vocabulary, settings in (
        ("temperature", large, {"temperature": 1.0}),
        ("truncated", large, {"temperature": 1.0, "top_k": 50, "top_p": 0.9, "min_p": 0.1}),
        ("odd vocabulary", small, {"temperature": 1.0, "top_p": 0.9}),
        ("small vocabulary", 256, {"temperature": 1.0}),
        ("greedy", large, {"temperature": 0.0}),
    ):
        logits = torch.zeros(count, vocabulary, dtype=torch.bfloat16)
        yield (
            "philox_sample_kernel",
            philox,
            name,
            lambda z=logits, s=settings: philox.sample(
                z, key, key, antithetic_B=key > 0, entropy=True, **s
            ),
        )


def source(kernel: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[ASTSource, Any]:
    """The launch as a source to compile, specialised as a launch on a GPU would be."""
    options = {name: named.pop(name) for name in ("num_warps", "enable_fp_fusion")}
    bound = dict(zip(kernel.arg_names, values, strict=False)) | named
    signature, constants, attributes = {}, {}, {}
    for index, name in enumerate(kernel.arg_names):
        value = bound[name]
        constant = kernel.params[index].is_constexpr or value is None
        constant = constant or (type(value) is int and value == 1)
        if constant:
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = TYPES[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
            if isinstance(value, int) and value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constants, attributes), options


def measure(compiled: Any, folder: Path) -> dict[str, int]:
    """What the assembler made of a kernel."""
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    usage, sass = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in ([tools / "cuobjdump", "-res-usage", cubin], [tools / "nvdisasm", cubin])
    )
    found = re.search(r"REG:(\d+)", usage)
    assert found is not None, usage
    return {
        "registers": int(found[1]),
        "shared": compiled.metadata.shared,
        "spills": len(re.findall(r"\b(?:LDL|STL)\b", sass)),
        "wide_loads": len(re.findall(r"\bLDG\.E\S*\.128", sass)),
        "float64": len(re.findall(r"\.f64", compiled.asm["ptx"])),
    }


def table() -> Iterator[dict[str, Any]]:
    """One row for each (kernel, configuration, architecture)."""
    version = ".".join(triton.__version__.split(".")[:2])
    with tempfile.TemporaryDirectory() as folder:
        for name, module, configuration, launch in configurations():
            kernel = getattr(module, name)
            recorder = Recorder(kernel)
            setattr(module, name, recorder)
            launch()
            setattr(module, name, kernel)
            values, named = recorder.launch
            built, options = source(kernel, values, dict(named))
            for arch in ARCHITECTURES:
                target = GPUTarget("cuda", arch, 32)
                compiled = triton.compile(built, target=target, options=options)
                found = measure(compiled, Path(folder))
                yield {
                    "triton": version,
                    "kernel": name,
                    "configuration": configuration,
                    "arch": f"sm_{arch}",
                } | found


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET", "0") != "0":
        raise SystemExit("kernels are interpreted under TRITON_INTERPRET: unset it to compile them")
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in table():
        writer.writerow(line)
        sys.stdout.flush()
