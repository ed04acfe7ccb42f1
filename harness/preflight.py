"""What can be refused before a lineage or a file is made, in one place.

Every check raises ValueError with a sentence.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from harness.config import Experiment
from harness.ledger.connection import present, tracking_uri
from harness.round import Seed


def preflight(experiment: Experiment) -> None:
    """All checks that need no model and no ledger."""
    uri = tracking_uri(experiment.ledger["uri"])
    need_compiler(experiment.maps.U)
    need_folder(experiment.store["root"], "store.root")
    need_folder(getattr(experiment.maps.U, "spill", None), "update.spill")
    need_problems(experiment)
    if experiment.branch != "main" and experiment.parent is None and not present(uri):
        raise ValueError(no_branch(experiment.branch))
    if experiment.parent is not None and not present(uri):
        raise ValueError(
            f"lineage.parent is {experiment.parent!r}, but there is no ledger at {uri!r}; run a "
            "round first"
        )


def no_branch(branch: str) -> str:
    return f"the branch {branch!r} does not exist yet; say what it forks from with lineage.parent"


def need_compiler(update: Any) -> None:
    """What DeepSpeed compiles as it starts can be compiled. Ranks speak through gloo or NCCL, which
    need nothing, nor does offloading to the host, where torch's AdamW steps; to a disk it does."""
    zero = getattr(update, "deepspeed", {}).get("zero_optimization", {})
    compiler = os.environ.get("CXX") or "c++"
    for part in ("offload_optimizer", "offload_param"):
        device = (zero.get(part) or {}).get("device")
        if device == "nvme" and shutil.which(compiler) is None:
            raise ValueError(
                f"update.deepspeed.zero_optimization.{part}.device is nvme, for which DeepSpeed "
                f"compiles its input and output with {compiler!r}, which is not on this machine; "
                "install g++, or use cpu"
            )


def need_folder(root: str | None, key: str) -> None:
    """A folder of one's own, where one is given, can be written to."""
    if root is None or "://" in root:
        return
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
        good = os.access(root, os.W_OK)
    except OSError:
        good = False
    if not good:
        raise ValueError(f"{key} is {root!r}; it must be a folder that can be written to")


def need_problems(experiment: Experiment) -> None:
    """The environment can begin with what the task draws."""
    seed = Seed("0" * 32)
    problem = experiment.task.draw(seed)
    try:
        experiment.environment.reset(problem, seed)
    except (KeyError, TypeError) as error:
        task, environment = type(experiment.task).__name__, type(experiment.environment).__name__
        raise ValueError(
            f"the environment {environment} cannot begin with a problem of the task {task} "
            f"({error}); choose two that belong together, as a file in conf/round does"
        ) from None
    except Exception as error:
        raise ValueError(
            f"the environment {type(experiment.environment).__name__} cannot begin here "
            f"({type(error).__name__}: {error}); bring up what it needs first"
        ) from None
