"""Rounds from the command line: words to a configuration, by Hydra; one job a lineage.

Hydra composes and sweeps. What is wrong with the words is said here in the terms of this project:
one sentence, and nothing of Hydra's insides.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import ranks

CONF = Path(__file__).resolve().parent / "conf"
VALUED = {"--cfg": "-c", "--package": "-p", "--config-dir": "-cd", "--config-name": "-cn"}
SHOWN = "`--cfg job` shows the keys there are"
FLAGS = {"--multirun": "-m", "--resolve": "", "--run": "-r"}


def rounds(argv: Sequence[str], refuse: Callable[[BaseException], int]) -> int:
    """Compose, and run the job or every arm of the sweep; the worst exit code."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    # errors come to us, not to Hydra's own printer
    os.environ["HYDRA_FULL_ERROR"] = "1"
    options, words = parted(argv)
    jobs = Jobs(refuse, argv)
    run = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(jobs)
    # DeepSpeed's keys are its own: any may be given, known to our schema or not
    given = [f"++{word}" if word.startswith("update.deepspeed.") else word for word in words]
    # what is said is said by the harness: Hydra's log files would lie about
    silent = [f"hydra/{log}=none" for log in ("job_logging", "hydra_logging")]
    before, trace = sys.argv, Path("multirun.yaml")
    there = trace.exists()
    sys.argv = [before[0], *options, *given, *silent]
    try:
        run()
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(explain(error, words)) from None
    finally:
        sys.argv = before
        GlobalHydra.instance().clear()
        if not there:
            trace.unlink(missing_ok=True)
    return jobs.close()


class Jobs:
    """Runs every job that Hydra composes; one that fails does not stop the others."""

    def __init__(self, refuse: Callable[[BaseException], int], words: Sequence[str]) -> None:
        self.refuse, self.words = refuse, words
        self.codes: list[tuple[str, int]] = []

    def __call__(self, cfg: Any) -> int:
        from hydra.core.hydra_config import HydraConfig

        own = HydraConfig.get()
        swept = own.mode is not None and own.mode.name == "MULTIRUN"
        arm = " ".join(own.overrides.task) if swept else ""
        try:
            words = list(own.overrides.task) if swept else self.words
            code = self.lineage(cfg, str(own.runtime.choices.get("round") or "round"), arm, words)
        except Exception as error:
            # a fault of ours shows where it happened; in a sweep the other arms still run
            code = self.refuse(error)
            if code < 0 and not swept:
                raise
            if code < 0:
                traceback.print_exc()
                code = 1
        self.codes.append((arm, code))
        return code

    def lineage(self, cfg: Any, name: str, arm: str, words: Sequence[str]) -> int:
        from omegaconf import OmegaConf

        if arm and ranks.speaks():
            print(arm)
        try:
            OmegaConf.resolve(cfg)
            container: Any = OmegaConf.to_container(cfg)
        except Exception as error:
            raise ValueError(first_line(error)) from None
        from harness import config

        experiment = config.build({str(key): value for key, value in container.items()}, name)
        from harness import runner

        return runner.run(experiment, words)

    def close(self) -> int:
        """Say how a sweep went; the worst exit code."""
        if len(self.codes) > 1 and ranks.speaks():
            failed = [arm for arm, code in self.codes if code]
            print(f"{len(self.codes)} arms, {len(failed)} failed", *failed, sep="\n  ")
        return max((code for _, code in self.codes), default=0)


# ---- words


def listed(folder: Path) -> list[str]:
    """The options of a group."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def parted(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options and words apart. Raises ValueError for what is neither."""
    options: list[str] = []
    words: list[str] = []
    rest = list(argv)
    short = {s: name for name, s in (VALUED | FLAGS).items() if s}
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            words.append(word)
            continue
        name, given, value = word.partition("=")
        name = short.get(name, name)
        if name in FLAGS and not given:
            options.append(name)
        elif name in VALUED:
            if not given and not rest:
                raise ValueError(f"{name} lacks its value, such as {name} job")
            value = value if given else rest.pop(0)
            if name == "--cfg" and value not in ("job", "hydra", "all"):
                raise ValueError(f"--cfg is {value!r}; it is job, hydra or all")
            options += [name, value]
        else:
            near = closest(name, [*VALUED, *FLAGS, "--help"])
            raise ValueError(f"there is no option {name}; {near or '`--help` shows what there is'}")
    for word in words:
        check_word(word)
    return options, words


def check_word(word: str) -> None:
    """Refuse a word that Hydra would misread. Raises ValueError."""
    plain, equals, value = word.partition("=")
    name = plain.lstrip("+")
    if not equals and not word.startswith("~"):
        for kind in ("round", "sweeps"):
            if word in listed(CONF / kind):
                raise ValueError(f"{word!r} is no verb; to run it, write +{kind}={word}")
        raise ValueError(f"{word!r} is no key=value, such as {name or 'rounds'}=…")
    kind = {"round": "round", "sweeps": "sweeps", "sweep": "sweeps"}.get(name, "")
    if name == "rounds" and value.split(",")[0] in listed(CONF / "round"):
        kind = "round"
    if kind and plain != f"+{kind}":
        raise ValueError(f"{word} cannot be; write +{kind}={value}")
    if kind == "sweeps" and re.search(r"[,(\[]", value):
        raise ValueError(f"{word}: sweep files cannot be swept over; run one at a time")


def closest(word: str, options: Iterable[str]) -> str:
    """A question with the options that a word may have meant; empty if there are none."""
    leaf = word.rpartition(".")[2]
    likeness = {
        option: difflib.SequenceMatcher(None, leaf, option.rpartition(".")[2]).ratio()
        for option in options
    }
    best = max(likeness.values(), default=0.0)
    near = sorted(o for o in likeness if likeness[o] > max(0.7, best - 0.1))
    return f"did you mean {' or '.join(near[:3])}?" if near else ""


# ---- what Hydra says, in our words


def explain(error: BaseException, words: Sequence[str]) -> str:
    """One sentence."""
    text = str(error).strip()
    missing = getattr(error, "missing_cfg_file", None)
    if missing is not None:
        group, _, name = str(missing).rpartition("/")
        options = sorted(getattr(error, "options", None) or [])
        close = difflib.get_close_matches(name, options, n=1)
        rest = f"did you mean {close[0]}?" if close else f"there are {', '.join(options)}"
        return f"there is no {group or 'configuration'} {name!r}" + (f"; {rest}" if options else "")
    if found := re.match(r"Could not override '([^']*)'", text):
        key = found.group(1)
        known = sorted(keys_of(words))
        section = key.rpartition(".")[0]
        beside = [k.removeprefix(f"{section}.") for k in known if k.rpartition(".")[0] == section]
        there = f"{section} has {', '.join(beside)}" if section and beside else ""
        return f"there is no key {key!r}; {closest(key, known) or there or SHOWN}"
    if found := re.search(r"item is already at '([^']*)'", text):
        return f"there is a {found.group(1)} already; write it without the plus"
    if found := re.match(r"Multiple values for (\S+)\.", text):
        return f"{found.group(1)} is chosen twice; write {found.group(1)}=… once, without a plus"
    if found := re.match(r"Could not delete[^']*'([^']*)'", text):
        return f"there is no {found.group(1)!r} to take away"
    if found := re.match(r"Ambiguous value for argument '([^=]*)=(.*)'", text):
        key, value = found.groups()
        return f"{key}={value} has several values; add -m to run each, or write {key}=[{value}]"
    if (word := getattr(error, "override", None)) is not None:
        return f"{word} cannot be read as key=value; put quotes around what has brackets or commas"
    return first_line(error)


def first_line(error: BaseException) -> str:
    """The first line of a message, or of its cause's."""
    for told in (error, error.__cause__, error.__context__):
        if told is not None and str(told).strip():
            return str(told).strip().split("\n")[0]
    return type(error).__name__


def keys_of(words: Sequence[str]) -> set[str]:
    """The keys of the configuration that the groups among these words choose."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    groups = [w for w in words if (CONF / w.lstrip("+").split("=")[0]).is_dir() and "," not in w]
    found: set[str] = set()

    def walk(node: Any, path: str) -> None:
        for key, value in node.items():
            where = f"{path}.{key}" if path else str(key)
            found.add(where)
            if isinstance(value, Mapping):
                walk(value, where)

    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            walk(OmegaConf.to_container(compose("config", groups)), "")
    except Exception:
        # only a hint: the words are wrong in more than one way
        return found
    return {key for key in found if "_target_" not in key}
