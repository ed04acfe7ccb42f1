"""What `--help` prints, and what is said to a word that is no verb: file names and headings."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONF = HERE / "conf"
NOT_GROUPS = ("round", "sweeps", "hydra")

HELP = """\
Agentic post-training rounds of language models, declared, recorded and replayable.

  python -m harness +round=NAME [key=value …]      run rounds
  python -m harness -m +round=NAME key=a,b …       run a sweep, each arm its own lineage
  python -m harness +sweeps=NAME                   run a sweep file
  python -m harness VERB …                         use what was recorded

Rounds
{rounds}

Sweeps
{sweeps}

Verbs
{verbs}

Groups: choose with GROUP=OPTION
{groups}

Keys
  rounds, ranks                                    how many, on how many processes
  lineage.name, lineage.parent, lineage.branch     where they go
  seeds.root                                       one number, from which every seed follows
  store.snapshot_every                             how often a state is stored
  budget.<dimension>                               where to stop, such as budget.tokens.sampled
  update.deepspeed.*                               DeepSpeed's own keys

`--cfg job +round=NAME` prints a composed configuration with all its keys;
`VERB --help` says how a verb is used.
"""


def help_text() -> str:
    """Everything that there is to choose from, by name."""
    groups = sorted(p for p in CONF.iterdir() if p.is_dir() and p.name not in NOT_GROUPS)
    return HELP.format(
        rounds=_table((path.stem, _comment(path)) for path in _yaml(CONF / "round")),
        sweeps=_table((path.stem, _comment(path)) for path in _yaml(CONF / "sweeps")),
        verbs=_table((name, _heading(path)) for name, path in sorted(_verbs().items())),
        groups=_table((g.name, ", ".join(p.stem for p in _yaml(g))) for g in groups),
    ).rstrip()


def verb_names() -> list[str]:
    """Every verb."""
    return sorted(_verbs())


def check_verb(word: str) -> None:
    """Refuse a first word that is meant as a verb and is none. Raises ValueError."""
    if re.fullmatch(r"[A-Za-z][\w-]*", word) is None:
        return
    for kind in ("round", "sweeps"):
        if (CONF / kind / f"{word}.yaml").exists():
            raise ValueError(f"{word!r} is no verb; to run it, write +{kind}={word}")
    verbs = verb_names()
    near = difflib.get_close_matches(word, verbs, n=1, cutoff=0.6)
    rest = f"did you mean {near[0]}?" if near else f"there are {', '.join(verbs)}"
    raise ValueError(f"there is no verb {word!r}; {rest}")


def _verbs() -> dict[str, Path]:
    """Name to file; a trailing underscore of a file's name is not part of its verb."""
    files = [path for path in (HERE / "verbs").glob("*.py") if not path.stem.startswith("_")]
    return {path.stem.rstrip("_").replace("_", "-"): path for path in files}


def _yaml(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _comment(path: Path) -> str:
    """The first comment of a configuration file that is not Hydra's."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ")
    return ""


def _heading(path: Path) -> str:
    """The first line of a module's docstring, without its name."""
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return words.split("\n")[0].partition(": ")[2].rstrip(".")


def _table(rows: Iterable[tuple[str, str]]) -> str:
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0) + 2
    lines = [
        textwrap.fill(
            text, 100, initial_indent=f"  {name:<{width}}", subsequent_indent=" " * (width + 2)
        ) if text else f"  {name}"
        for name, text in listed
    ]  # fmt: skip
    return "\n".join(lines) or "  none"
