"""How fast content identifiers are, beside SHA-256 over the same bytes on all cores.

OMP_NUM_THREADS=$(nproc) python sweeps/identity.py     appends to sweeps/results/identity.csv

The state is that of a Llama of 135M parameters (SmolLM2's shapes) with Adam's: a bfloat16 model,
float32 masters and two moments. The peer hashes the same tensors in chunks of 4 MiB, spread over a
thread for each core (hashlib lets go of the interpreter's lock); it makes no tree of its digests.
Both run in turn in one process; figures are medians. A dry run takes a small model.
"""

import csv
import hashlib
import os
import platform
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "sweeps" / "results" / "identity.csv"
CHUNK = 4 << 20
REPEATS = 9


def state(dry):
    """Random tensors of the shapes of a model, and the optimizer state that belongs to it."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from harness.forms import Artifact

    sizes = (64, 128, 2, 2, 1, 512) if dry else (576, 1536, 30, 9, 3, 49152)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "vocab_size")  # fmt: skip
    config = LlamaConfig(**dict(zip(names, sizes, strict=True)), tie_word_embeddings=True)
    with torch.device("meta"):
        shapes = {
            n: p.shape for n, p in AutoModelForCausalLM.from_config(config).named_parameters()
        }
    model = {n: torch.rand(s).bfloat16() for n, s in shapes.items()}
    kinds = ("master", "exp_avg", "exp_avg_sq")
    optimizer = {f"{k}/{n}": torch.rand(s) for k in kinds for n, s in shapes.items()}
    return [lambda: Artifact("model", {}, model), lambda: Artifact("optimizer", {}, optimizer)]


def measure(dry=False):
    """One row: bytes a second of both, and their ratio."""
    import blake3
    import torch

    from harness.forms import torch_bytes

    makers = state(dry)
    views = [torch_bytes(n, t)[3] for make in makers for n, t in make().tensors.items()]
    chunks = [v[i : i + CHUNK] for v in views for i in range(0, len(v), CHUNK)]
    size, cores = sum(map(len, chunks)), os.cpu_count() or 1
    pool = ThreadPoolExecutor(cores)
    calls = {
        "identifiers": lambda: [make().id for make in makers],
        "sha256": lambda: list(pool.map(lambda c: hashlib.sha256(c).digest(), chunks)),
    }
    taken = {name: [] for name in calls}
    for turn in range(REPEATS + 1):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            if turn:
                taken[name].append(time.perf_counter() - begun)
    seconds = {name: statistics.median(each) for name, each in taken.items()}
    pairs = zip(taken["sha256"], taken["identifiers"], strict=True)
    ratios = sorted(theirs / ours for theirs, ours in pairs)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True,
        text=True,
    ).stdout.strip()  # fmt: skip
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    sha = "SHA-NI" if " sha_ni" in flags else "no SHA-NI"
    return {
        "bytes": size, "identifiers_gb_per_s": f"{size / seconds['identifiers'] / 1e9:.3f}",
        "sha256_gb_per_s": f"{size / seconds['sha256'] / 1e9:.3f}",
        "ratio": f"{statistics.median(ratios):.3f}", "ratio_low": f"{ratios[0]:.3f}",
        "ratio_high": f"{ratios[-1]:.3f}", "repeats": REPEATS,
        "peer": f"hashlib.sha256, {cores} threads, chunks of 4 MiB, {sha}", "commit": commit,
        "machine": f"{platform.machine()} {cores} cores, Python {platform.python_version()}, "
                   f"blake3 {blake3.__version__}, torch {torch.__version__}",
    }  # fmt: skip


if __name__ == "__main__":
    row = measure("--dry" in sys.argv)
    print(row)
    if "--dry" not in sys.argv:
        fresh = not RESULTS.exists()
        with RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, row, lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(row)
