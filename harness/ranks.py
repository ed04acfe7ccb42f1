"""Ranks: started on this host, or joined where something else has started them.

`ranks=N` alone starts N processes of this same command under torch's elastic launcher (what
`torchrun` runs). Under `torchrun`, `deepspeed` or Slurm's `srun` the processes are there already:
they join, and `ranks` may be left out. Rank 0 runs the rounds; the others `follow`.

A rank that dies takes the round with it: its connections close, every rank that waits for it fails,
rank 0 marks the attempt as failed with what it has cost, and the launcher says what the first rank
that failed said.
"""

from __future__ import annotations

import atexit
import dataclasses
import datetime
import functools
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from harness.ending import ASKED, ask, heed
from harness.round import Seed, State
from harness.world import ALONE, World, unpacked

if TYPE_CHECKING:
    from harness.config import Experiment

FAULTS = "HARNESS_FAULTS"
"""The folder where ranks that were started here say why they failed."""
ANSWER = "answer"
"""The file there with the exit code of a command that ran."""
GRACE = 10
"""Seconds that ranks have to end after one has failed."""


class Lost(RuntimeError):
    """Another rank is gone: a consequence, not the cause."""


@functools.lru_cache(maxsize=1)
def started() -> int | None:
    """How many ranks something else has started; None if this process is alone.

    Also gives torch's names to what Slurm says.
    """
    env = os.environ
    if "RANK" in env and "WORLD_SIZE" in env:
        return int(env["WORLD_SIZE"])
    # inside an allocation, but not started by srun: a single process
    alone = "SLURM_JOB_ID" in env and "SLURM_STEP_ID" not in env
    size = env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS") or "1"
    if alone or "SLURM_PROCID" not in env or int(size) == 1:
        return None
    env.update(RANK=env["SLURM_PROCID"], WORLD_SIZE=size)
    env.setdefault("LOCAL_RANK", env.get("SLURM_LOCALID", "0"))
    env.setdefault("MASTER_ADDR", first_host(env.get("SLURM_STEP_NODELIST", "")))
    env.setdefault("MASTER_PORT", str(15000 + int(env.get("SLURM_JOB_ID", "0")) % 20000))
    return int(size)


def first_host(hosts: str) -> str:
    """The first of Slurm's list of hosts, such as `node[03-07,12]`."""
    if not hosts:
        return "127.0.0.1"
    found = re.match(r"([^\[,]+)(?:\[(\w+))?", hosts)
    assert found is not None
    return found.group(1) + (found.group(2) or "")


def count(asked: int | None) -> int:
    """How many ranks a round runs on. Raises ValueError where it is not what was started."""
    there = started()
    if asked is None:
        return there or 1
    if there is not None and asked != there:
        raise ValueError(
            f"ranks is {asked}, but {there} were started; give ranks={there} or leave it out"
        )
    return asked


def speaks() -> bool:
    """Whether this process is the one of its ranks that people hear."""
    return os.environ.get("RANK", "0") == "0"


# ---- starting


def start(words: Sequence[str], ranks: int, threads: int) -> int:
    """Run this command on some ranks of this host; the exit code."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with (
        tempfile.TemporaryDirectory(prefix="harness-ranks-") as faults,
        quiet(),
        surroundings(
            {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": str(threads), FAULTS: faults, **path()}
        ),
    ):
        config = LaunchConfig(
            min_nodes=1, max_nodes=1, nproc_per_node=ranks, max_restarts=0, run_id=str(os.getpid()),
            rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", local_addr="127.0.0.1",
            monitor_interval=0.1, shutdown_timeout=GRACE,
        )  # fmt: skip
        try:
            elastic_launch(config, sys.executable)("-m", "harness", *words)
        except ChildFailedError as error:
            # what a rank printed comes first
            sys.stdout.flush()
            said, code = verdict(Path(faults), error.failures)
            print(f"error: {said}", file=sys.stderr)
            return code
        except SignalException as error:
            raise KeyboardInterrupt from error
        told = Path(faults) / ANSWER
        return int(told.read_text()) if told.exists() else 0


def answer(code: int) -> int:
    """The exit code of a rank whose command's answer is `code`: an answer of no is no failure."""
    if (folder := os.environ.get(FAULTS)) is None:
        return code
    (Path(folder) / ANSWER).write_text(str(code))
    return 0


def path() -> dict[str, str]:
    """Where ranks find this package, if it is not installed."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "pyproject.toml").exists():
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))}


@contextmanager
def surroundings(values: Mapping[str, str]) -> Iterator[None]:
    """The environment with some variables set."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def quiet() -> Iterator[None]:
    """The launcher's own log is for its developers."""
    import logging

    logger = logging.getLogger("torch.distributed")
    level = logger.level
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        logger.setLevel(level)


def verdict(faults: Path, failures: Mapping[int, Any]) -> tuple[str, int]:
    """Why the ranks failed, in a sentence, and the exit code: the cause before its consequences."""
    told = sorted((json.loads(f.read_text()) for f in faults.glob("*.json")), key=by_time)
    for fault in told:
        if not fault["lost"]:
            return f"rank {fault['rank']}: {fault['text']}", int(fault["code"])
    silent = {rank: failure.exitcode for rank, failure in failures.items()}
    for rank, code in sorted(silent.items()):
        if code < 0 and -code != signal.SIGTERM:
            name = signal.Signals(-code).name
            return f"rank {rank} was killed ({name}), and the round with it", 1
    for fault in told:
        return f"rank {fault['rank']}: {fault['text']}", 1
    # one that was told to end is no cause
    rank, code = min(silent.items(), key=lambda item: (item[1] == -signal.SIGTERM, item))
    return f"rank {rank} ended with exit code {code}", 1


def by_time(fault: Mapping[str, Any]) -> float:
    return float(fault["time"])


# ---- joining


@functools.lru_cache(maxsize=1)
def join(size: int) -> World:
    """The world that this process is a rank of."""
    if size == 1:
        return ALONE
    import torch

    from harness.update.engine import join_world

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    join_world()
    # of DeepSpeed's calls, not of ours
    warnings.filterwarnings("ignore", ".*all_gather_into_tensor.*", FutureWarning)
    # the others wait for rank 0 as long as it has something to do alone
    patience = datetime.timedelta(days=7)
    group = torch.distributed.new_group(backend="gloo", timeout=patience)
    world = World(torch.distributed.get_rank(), size, group)
    if not world.leads:
        # rank 0 says when to end; where it cannot, its connections close
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    PEERS.extend(pid for host, pid in world.tell([os.uname().nodename, os.getpid()])
                 if host == os.uname().nodename)  # fmt: skip
    return world


PEERS: list[int] = []
"""The processes of the ranks on this host."""


def leave(code: int) -> None:
    """End a process that is one of several ranks; another goes on.

    What libraries left to the end is done, but nothing is taken down: threads of torch's groups may
    outlast what owns them, and then an ordinary end aborts.
    """
    if not PEERS:
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def gone(process: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return Path("/proc/self/stat").exists()
    return state in "ZX"


def follow(experiment: Experiment, world: World, model: Any = None) -> int:
    """Do what rank 0 calls this rank to, until it says that all is done.

    model: the one that the lineage began with, where it is at hand.
    """
    from harness.bound import with_evaluations, with_reference
    from harness.forms import Instance, Lesson
    from harness.policies.model import load_tokenizer
    from harness.policies.resident import Resident

    model = model or experiment.model.initial()
    held = Known(model, Resident(world=world))
    tokenizer = load_tokenizer(model)
    inference = experiment.inference.bind(tokenizer)
    maps: Any = experiment.maps
    R = dataclasses.replace(maps.R, world=world)
    U = dataclasses.replace(maps.U, resident=held.resident)
    U = with_evaluations(U, tokenizer, world)
    while True:
        call = world.hear(held.find, held.made)
        seed = Seed(call.words.get("seed", ""))
        if call.duty == "R":
            policy = held.resident.policy(call.artifacts[0], inference)
            for reference in call.artifacts[1:]:
                if R.reference.scorer is None:
                    R = with_reference(R, reference, inference)
            mine = R
            for reference in call.artifacts[1:]:
                mine = with_reference(R, reference, inference)
            mine(policy, experiment.environment)(unpacked(Instance, call.value), seed)
        elif call.duty == "U":
            model, optimizer = call.artifacts
            U(State(model, optimizer), unpacked(Lesson, call.value), seed)
            held.initial.clear()
        elif call.duty == "forget":
            for engine in held.engines():
                engine.forget()
        elif call.duty == "tensors":
            for engine in held.engines():
                engine.tensors(call.words["kind"], tuple(call.words["key"]))
        elif call.duty == "peak":
            world.tell(peak())
        else:
            assert call.duty == "end", call.duty
            return 0


class Known:
    """The artifacts that a follower holds."""

    def __init__(self, model: Any, resident: Any) -> None:
        from harness.update.engine import initial_optimizer

        optimizer = initial_optimizer(model)
        self.resident = resident
        self.initial = {("model", model.id): model, ("optimizer", optimizer.id): optimizer}
        self.bases = {base.id: base for base in (model.base,) if base is not None}

    def engines(self) -> list[Any]:
        return [cached for cached in self.resident.caches.values() if hasattr(cached, "held")]

    def find(self, kind: str, identifier: str) -> Any:
        for engine in self.engines():
            held = ((engine.current, engine.step_count), (engine.saved, engine.saved_step))
            for key, step in held:
                if key is not None and identifier == key[kind == "optimizer"]:
                    state = engine.held(key, step)
                    return state.model if kind == "model" else state.optimizer
        return self.initial.get((kind, identifier), self.bases.get(identifier))

    def made(self, kind: str, meta: Any, tensors: Any, files: Any, base: Any) -> Any:
        from harness.forms import Artifact
        from harness.policies.model import Model

        model = kind == "model"
        made = Model(kind, meta, tensors, files, base) if model else Artifact(kind, meta, tensors)
        self.initial[kind, made.id] = made
        return made


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def peaks(world: World) -> int:
    """The peaks of all ranks together."""
    world.call("peak")
    return sum(world.tell(peak()))


# ---- failing


@contextmanager
def sharing(world: World) -> Iterator[None]:
    """An error of one rank of several ends that rank, which ends the others."""
    try:
        yield
    except Exception as error:
        if world.size == 1:
            raise
        fail(error, world)


@contextmanager
def failing() -> Iterator[None]:
    """SIGTERM as an exception of rank 0: `Lost` where another rank has died, which a launcher
    answers so; else somebody wants the run to end, and it ends as killed."""

    def stop(number: int, frame: FrameType | None) -> None:
        # one failure is enough: what is being cleaned up is left to end
        if sys.exc_info()[0] is not None:
            ask(number)
            return
        if any(gone(process) for process in PEERS):
            raise Lost("another rank has ended")
        ask(number)
        heed()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        ASKED.clear()


def fail(error: BaseException, world: World) -> NoReturn:
    """Say why this rank failed, and end the process: nothing of it may keep the others waiting."""
    text = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    text = " ".join(text.split())[:1000]
    code = 2 if isinstance(error, ValueError | OSError) else 1
    fault = {
        "rank": world.rank, "text": text, "code": code, "lost": lost(error), "time": time.time(),
    }  # fmt: skip
    if (folder := os.environ.get(FAULTS)) is not None:
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            file.write(json.dumps(fault))
        os.replace(file.name, Path(folder) / f"{world.rank}.json")
    else:
        print(f"error: rank {world.rank}: {text}", file=sys.stderr)
    if os.environ.get("HARNESS_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def lost(error: BaseException) -> bool:
    """Whether an error only says that another rank is gone."""
    import torch

    said = str(error).lower()
    return isinstance(error, Lost | torch.distributed.DistError) or (
        isinstance(error, RuntimeError)
        and any(word in said for word in ("gloo", "connection closed", "connection reset", "nccl"))
    )
