"""`python -m harness`: a verb, or rounds composed by Hydra.

    python -m harness +round=quickstart        run rounds
    python -m harness -m +round=… key=a,b      run a sweep
    python -m harness VERB …                   read, check and use what was recorded
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

HELP = """Usage: python -m harness +round=NAME [key=value …]     run rounds
       python -m harness -m +round=NAME key=a,b …       run a sweep, each arm its own lineage
       python -m harness +sweeps=NAME                   run a sweep file
       python -m harness VERB …                         use what was recorded

Rounds   {rounds}
Sweeps   {sweeps}
Groups   {groups}
Keys     rounds, ranks, lineage.name, lineage.parent, lineage.branch, seeds.root,
         store.snapshot_every, budget.<dimension>, update.deepspeed.*
Verbs    {verbs}

`python -m harness --cfg job +round=NAME` prints a composed configuration, `VERB --help` a verb's use.
"""


def isolate() -> None:
    """Take the checkout's root off the path: its folder `kernels` would hide another package.

    The package is loaded already, so its own modules are still found.
    """
    root = Path(__file__).resolve().parent.parent
    if (root / "kernels").is_dir():
        sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != root]


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked; the exit code."""
    argv = sys.argv[1:] if arguments is None else arguments
    isolate()
    if not argv or argv[0] in ("-h", "--help"):
        print(help_text())
        return 0
    quiet()
    try:
        if is_verb(argv[0]):
            from harness import verbs

            return int(verbs.app(argv) or 0)
        return rounds(argv)
    except (ValueError, OSError) as error:
        return refuse(error)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last record", file=sys.stderr)
        return 130


def quiet() -> None:
    """Libraries keep their chatter to themselves; what the harness says is said by the harness."""
    defaults = {
        "MLFLOW_TRUNCATE_LONG_VALUES": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
        "DS_SKIP_CUDA_CHECK": "1", "TOKENIZERS_PARALLELISM": "false", "DEEPSPEED_LOG_LEVEL": "error",
        "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def is_verb(word: str) -> bool:
    return word in verb_names()


def verb_names() -> list[str]:
    folder = Path(__file__).parent / "verbs"
    return sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))


def help_text() -> str:
    conf = Path(__file__).parent / "conf"
    listed = lambda folder: ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))  # noqa: E731
    groups = ", ".join(sorted(p.name for p in conf.iterdir() if p.is_dir() and p.name != "round"))
    sweeps = conf / "sweeps"
    return HELP.format(
        rounds=listed(conf / "round"), sweeps=listed(sweeps) if sweeps.is_dir() else "",
        groups=groups, verbs=", ".join(verb_names()),
    )  # fmt: skip


def refuse(error: BaseException) -> int:
    """Say in one sentence what cannot be."""
    text = " ".join(str(error).split()) or type(error).__name__
    if os.environ.get("HARNESS_TRACEBACK"):
        raise error
    print(f"error: {text}", file=sys.stderr)
    return 2


def rounds(argv: list[str]) -> int:
    """Compose with Hydra, and run the job or the sweep."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    # errors come to us, not to Hydra's own printer
    os.environ["HYDRA_FULL_ERROR"] = "1"
    swept_twice(argv)
    # DeepSpeed's keys are its own: any may be given, known to our schema or not
    argv = [f"++{word}" if word.startswith("update.deepspeed.") else word for word in argv]
    # what is said is said by the harness: Hydra's log files would lie about
    argv += [f"hydra/{log}=none" for log in ("job_logging", "hydra_logging")]
    outcome: list[int] = []
    job = hydra.main(version_base="1.3", config_path=str(Path(__file__).resolve().parent / "conf"), config_name="config")(
        lambda cfg: outcome.append(run_job(cfg))
    )
    sys.argv = [sys.argv[0], *argv]
    try:
        job()
    except (HydraException, OmegaConfBaseException) as error:
        return refuse(ValueError(explain(error)))
    return max(outcome, default=0)


def swept_twice(argv: list[str]) -> None:
    for word in argv:
        if word.startswith("+sweeps=") and "," in word:
            raise ValueError(f"{word}: sweep files cannot be swept over; run one at a time")


def explain(error: BaseException) -> str:
    """Hydra's message without its search path and hints that mean nothing here."""
    text = str(error).strip()
    first = text.split("\n")
    keep = [line.strip() for line in first if line.strip() and "HYDRA_FULL_ERROR" not in line]
    drop = ("provider=", "full_key:", "object_type=", "Config search path", "Available options")
    lines = [line for line in keep if not line.startswith(drop)]
    cause = error.__cause__
    if cause is not None and str(cause).strip():
        lines.append(str(cause).strip().split("\n")[0])
    text = " ".join(lines[:3])
    if "round" in text and "Could not find" in text:
        text += f"; the rounds are {rounds_there()}"
    return text


def rounds_there() -> str:
    folder = Path(__file__).parent / "conf" / "round"
    return ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))


def run_job(cfg: Any) -> int:
    """One job: a lineage."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    OmegaConf.resolve(cfg)
    container = OmegaConf.to_container(cfg)
    assert isinstance(container, dict)
    choices = HydraConfig.get().runtime.choices
    from harness import config, runner

    experiment = config.build(container, str(choices.get("round") or "round"))
    return runner.run(experiment)


if __name__ == "__main__":
    sys.exit(main())
