"""What a map was made of when it ran: a digest of its source and libraries, and the source itself.

    fingerprint = H("fingerprint", {module: digest of its syntax tree without docstrings, …,
                                    library: version, …})

over the map's module, every module of this project that it imports, and those of the objects in its
fields. It stands under a record's seal, never in its identity: a refactor changes no identity, and
a changed result under an unchanged version can be traced to the change.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import platform
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from harness.forms import Packed
from harness.identity import canonical, digest

PROJECT = "harness"
LIBRARIES = (
    "torch", "triton", "deepspeed", "transformers", "tokenizers", "safetensors", "numpy", "peft",
    "mlflow", "hydra-core", "omegaconf", "harness",
)  # fmt: skip


def fingerprint(thing: Any) -> str:
    """The digest of the code and libraries behind a map and the objects in its fields, or behind
    some modules."""
    return digest("fingerprint", canonical({"modules": modules(thing), "libraries": libraries()}))


def modules(thing: Any) -> dict[str, str]:
    """Module to digest, for all of this project's code behind a map."""
    found: dict[str, str] = {}
    for name in sorted(set(_modules_of(thing))):
        found |= _closure(name)
    return found


def parts(thing: Any) -> Iterator[Any]:
    """A map and the objects in its fields, however deep."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield thing
        for f in dataclasses.fields(thing):
            if f.metadata.get("identity", True):
                yield from parts(getattr(thing, f.name))
    elif isinstance(thing, Mapping):
        for value in thing.values():
            yield from parts(value)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from parts(value)
    elif isinstance(thing, ModuleType):
        yield thing


def _modules_of(thing: Any) -> Iterator[str]:
    for part in parts(thing):
        yield part.__name__ if isinstance(part, ModuleType) else type(part).__module__


@lru_cache(maxsize=512)
def _closure(name: str) -> dict[str, str]:
    """Module to digest, for a module and all of this project's that it imports."""
    found: dict[str, str] = {}
    todo = [name]
    while todo:
        current = todo.pop()
        if current in found:
            continue
        path = _path(current)
        if path is None:
            continue
        tree = ast.parse(path.read_text())
        found[current] = digest("source", ast.dump(_bare(tree)).encode())
        todo += [m for m in _imports(tree, current) if m.split(".")[0] == PROJECT]
    return found


def _path(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _imports(tree: ast.AST, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")
                is_package = (_path(module) or Path()).name == "__init__.py"
                parent = parent[: len(parent) - node.level + (1 if is_package else 0)]
                base = ".".join([*parent, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _bare(tree: ast.Module) -> ast.Module:
    """Without docstrings: what only explains is not what runs."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body = body[1:]  # type: ignore[attr-defined]
    return tree


@lru_cache(maxsize=1)
def libraries() -> dict[str, str]:
    """Versions of the libraries that can change a result."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@lru_cache(maxsize=1)
def machine() -> dict[str, Any]:
    """The platform: facts that we cannot set."""
    facts: dict[str, Any] = {
        "system": platform.system(), "machine": platform.machine(), "processor": _processor(),
        "python": platform.python_version(), "libraries": libraries(),
    }  # fmt: skip
    import torch

    facts["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
        facts["cuda"] = torch.version.cuda
    return facts


VARIABLES = (
    "ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA",
    "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
"""Variables of the environment that libraries read at their start and that can change a bit."""


def flags() -> dict[str, Any]:
    """Settings of libraries that can change a result and that no map sets."""
    import torch

    backends: Any = torch.backends
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "mkldnn": bool(backends.mkldnn.enabled),
        "flash_sdp": backends.cuda.flash_sdp_enabled(),
        "mem_efficient_sdp": backends.cuda.mem_efficient_sdp_enabled(),
        "math_sdp": backends.cuda.math_sdp_enabled(),
        "cudnn_deterministic": bool(backends.cudnn.deterministic),
        "cudnn_benchmark": bool(backends.cudnn.benchmark),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def apply_flags(recorded: Mapping[str, Any]) -> None:
    """Set what a record's process had set; the environment's variables can only be compared."""
    import torch

    backends: Any = torch.backends
    setters = {
        "float32_matmul_precision": torch.set_float32_matmul_precision,
        "deterministic_algorithms": torch.use_deterministic_algorithms,
        "default_dtype": lambda name: torch.set_default_dtype(getattr(torch, name)),
        "mkldnn": backends.mkldnn.set_flags,
        "flash_sdp": backends.cuda.enable_flash_sdp,
        "mem_efficient_sdp": backends.cuda.enable_mem_efficient_sdp,
        "math_sdp": backends.cuda.enable_math_sdp,
        "cudnn_deterministic": lambda on: setattr(backends.cudnn, "deterministic", on),
        "cudnn_benchmark": lambda on: setattr(backends.cudnn, "benchmark", on),
    }
    now = flags()
    for name, value in recorded.items():
        if name in setters and now[name] != value:
            setters[name](value)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


class Source(Packed):
    """The source of this package: each file a uint8 array under its path."""

    kind = "source"


@lru_cache(maxsize=1)
def archive() -> Source:
    """The source that is running, as a value that a store can keep."""
    root = Path(__file__).parent
    files = {
        str(path.relative_to(root)): np.frombuffer(path.read_bytes(), np.uint8).copy()
        for path in sorted(_files(root))
    }
    return Source({"package": PROJECT}, {name: data for name, data in files.items() if len(data)})


def _files(root: Path) -> Iterator[Path]:
    """Python and yaml files below a folder, through its links."""
    for path in root.iterdir():
        if path.is_dir():
            if path.name != "__pycache__":
                yield from _files(path)
        elif path.suffix in (".py", ".yaml"):
            yield path
