"""How the benches measure: interleaved runs, medians, peak memory, and a figure's origin."""

import csv
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
COLUMNS = (
    "kernel",
    "provider",
    "shape",
    "device",
    "seconds",
    "ratio",
    "memory_mb",
    "repeats",
    "peer",
    "torch",
    "commit",
    "machine",
)


def _sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def interleaved(
    calls: Mapping[str, Callable[[], object]], repeats: int, warm: bool = False
) -> dict[str, float]:
    """Median seconds of each call, every round running all of them in turn.

    One round more goes before and is not counted, unless everything is `warm`.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(0 if warm else -1, repeats):
        for name, call in calls.items():
            _sync()
            start = time.perf_counter()
            call()
            _sync()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_mb(call: Callable[[], object]) -> float:
    """Megabytes that a call holds at most beyond what was held before, its results included."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")

    def kilobytes(name: str) -> int:
        line = next(x for x in status.read_text().splitlines() if x.startswith(name))
        return int(line.split()[1])

    # 5 resets the high-water mark of this process
    Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    call()
    return (kilobytes("VmHWM") - before) * 1024 / 1e6


def _processor() -> str:
    """Model of the CPU, as far as it is told, and the instructions that torch uses."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [x.split(":")[1].strip() for x in lines if x.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name} {torch.backends.cpu.get_cpu_capability()}"


def origin() -> Row:
    """The commit, the machine and the version of torch behind a figure."""
    here = Path(__file__).resolve().parent
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=here,
        capture_output=True,
        text=True,
    )
    machine = f"{_processor()}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        machine = torch.cuda.get_device_name()
    return {
        "commit": found.stdout.strip() or "unknown",
        "machine": machine,
        "torch": torch.__version__,
        "device": "cuda" if torch.cuda.is_available() else "cpu",
    }


def to_csv(path: Path) -> Callable[[Row], None]:
    """Append rows to a file of COLUMNS."""

    def write(row: Row) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
            if fresh:
                writer.writeheader()
            writer.writerow(row)

    return write


def report(
    rows: Callable[[Row], None],
    kernel: str,
    shape: str,
    calls: Mapping[str, Callable[[], object]],
    *,
    base: str,
    repeats: int,
    memory: bool = False,
    peers: Mapping[str, str] | None = None,
) -> None:
    """Measure the calls, and hand on one row each; a ratio is its time over the base's."""
    held = {name: peak_mb(call) for name, call in calls.items()} if memory else {}
    seconds = interleaved(calls, repeats, warm=memory)
    for name, value in seconds.items():
        rows(
            {
                "kernel": kernel,
                "provider": name,
                "shape": shape,
                "seconds": f"{value:.6f}",
                "ratio": f"{value / seconds[base]:.4g}",
                "memory_mb": f"{held[name]:.1f}" if name in held else "",
                "repeats": repeats,
                "peer": (peers or {}).get(name, ""),
            }
            | origin()
        )
