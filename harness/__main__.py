"""`python -m harness`: a verb, or rounds composed by Hydra.

python -m harness +round=quickstart        run rounds
python -m harness -m +round=… key=a,b      run a sweep
python -m harness VERB …                   read, check and use what was recorded
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from harness import usage


def isolate() -> None:
    """Take the checkout's root off the path: its folder `kernels` would hide another package.

    The package is loaded already, so its own modules are still found.
    """
    root = Path(__file__).resolve().parent.parent
    if (root / "kernels").is_dir():
        sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != root]


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked; the exit code."""
    argv = own(sys.argv[1:] if arguments is None else arguments)
    isolate()
    if not argv or argv[0] in ("-h", "--help"):
        print(usage.help_text())
        return 0
    quiet()
    verb = argv[0] in usage.verb_names()
    try:
        if verb:
            from harness import verbs

            return int(verbs.app(argv) or 0)
        if {"-h", "--help"} & set(argv):
            print(usage.help_text())
            return 0
        usage.check_verb(argv[0])
        from harness import compose

        return compose.rounds(argv, refuse)
    except KeyboardInterrupt:
        after = "" if verb else "; the same command goes on from the last record"
        print(f"interrupted{after}", file=sys.stderr)
        return 130
    except Exception as error:
        code = refuse(error)
        if code < 0:
            raise
        return code


def own(argv: list[str]) -> list[str]:
    """The words that are meant for us: `deepspeed` adds a rank's number, which LOCAL_RANK says."""
    added = ("--local_rank=", "--local-rank=")
    return [w for w in argv if not (w.startswith(added) and "LOCAL_RANK" in os.environ)]


def quiet() -> None:
    """Libraries keep their chatter to themselves; what the harness says is said by the harness."""
    defaults = {
        "MLFLOW_TRUNCATE_LONG_VALUES": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
        "DS_SKIP_CUDA_CHECK": "1", "TOKENIZERS_PARALLELISM": "false",
        "DEEPSPEED_LOG_LEVEL": "error", "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def refuse(error: BaseException) -> int:
    """Say in one sentence what cannot be; the exit code, negative for a fault that is ours."""
    if isinstance(error, BrokenPipeError):
        # who read our output is gone: nothing more can be said to them
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    if full(error):
        said = f"error: the disk is full ({first_line(error)}); free some room, and the same "
        print(f"{said}command goes on from the last record", file=sys.stderr)
        return 1
    code = 2 if isinstance(error, ValueError | OSError) else 1 if negative(error) else -1
    if code < 0 or os.environ.get("HARNESS_TRACEBACK"):
        return -1
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    print(f"error: {text}", file=sys.stderr)
    return code


def full(error: BaseException) -> bool:
    """Whether an error says that there is no room left, whoever noticed."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    said = str(error)
    return any(words in said for words in ("database or disk is full", os.strerror(errno.ENOSPC)))


def first_line(error: BaseException) -> str:
    """What an error says, without what follows."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]


def negative(error: BaseException) -> bool:
    """Whether the request was right, and the answer is no."""
    from harness.ledger.entry import Conflict
    from harness.ledger.record import Broken

    return isinstance(error, Broken | Conflict)


if __name__ == "__main__":
    code = main()
    if (ranks := sys.modules.get("harness.ranks")) is not None:
        ranks.leave(code)
    sys.exit(code)
