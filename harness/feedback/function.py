"""Rewards by the user's own function.

    R_b = function(problem, messages, completion, answer, episode, seed)

The function is called once an episode, with those of these keywords that it takes:

    problem      the problem, a JSON object
    messages     the messages that the conversation began with
    completion   what the policy wrote, its turns joined by newlines
    answer       problem["answer"], None where there is none
    episode      the record of the episode: its `turns`, each with action and event
    seed         32 hex digits of this episode's own seed, for functions that draw

and returns one finite number, or None for an episode that it cannot score (NaN in F). Anything
else, a list or a NaN among it, is an error. What it is given is a copy.

`path` is "package.module:function" or "folder/file.py:function". Where a function raises, on_error
`raise` ends the round with one sentence, `unscorable` makes the episode unscorable. One that gives
no answer within `timeout` seconds makes the episode unscorable too, and the round open: F names the
episode in `exogenous`.

Source: none; an interface. Versions: 1, the first.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import math
import numbers
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness.forms import Instance, Scores, Trajectories
from harness.round import Seed
from harness.watchdog import TimeOut, check_seconds, within

KEYWORDS = ("problem", "messages", "completion", "answer", "episode", "seed")


def load(path: str) -> Callable[..., Any]:
    """The function at an import path or in a file. Raises ValueError with one sentence."""
    place, _, name = path.rpartition(":")
    if not place or not name.isidentifier():
        raise ValueError(
            f"feedback.path is {path!r}; it is package.module:function or file.py:function"
        )
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    # whatever the user's module raises on import is the user's, and told as one sentence
    except Exception as error:
        raise ValueError(
            f"feedback.path is {path!r}, which cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"feedback.path is {path!r}, but {place} has no function {name!r}")
    return function


def _from_module(place: str) -> Any:
    root = place.partition(".")[0]
    if importlib.util.find_spec(root) is None:
        # a module beside where the command was typed
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(place)
        finally:
            sys.path.remove(str(Path.cwd()))
    return importlib.import_module(place)


def _from_file(file: Path) -> Any:
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(f"feedback_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accepted(function: Callable[..., Any], path: str) -> tuple[str, ...]:
    """The keywords that a function takes. Raises ValueError where it needs another argument."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return KEYWORDS
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    others = [
        p.name for p in parameters
        if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        and (p.name not in KEYWORDS or p.kind is p.POSITIONAL_ONLY)
    ]  # fmt: skip
    if others:
        raise ValueError(
            f"{path} takes {others[0]!r}, which no episode has; a reward function is called with "
            f"the keywords {', '.join(KEYWORDS)}"
        )
    return tuple(name for name in KEYWORDS if name in names)


def validated(value: Any, path: str, b: int) -> float:
    """A reward as a float, NaN for None. Raises ValueError for what is not one finite number."""
    if value is None:
        return math.nan
    if not isinstance(value, numbers.Real | np.bool_) or not math.isfinite(value):
        raise ValueError(
            f"{path} returned {value!r} for episode {b}; it returns one finite number, or None "
            "for an episode that it cannot score"
        )
    return float(value)


@dataclass(frozen=True)
class Function:
    """One call an episode."""

    version: ClassVar[str] = "1"
    unseen: ClassVar[str] = "it calls a function of the user's, whose code is not looked at"
    path: str
    on_error: str = "raise"
    """raise | unscorable"""
    timeout: float | None = field(default=None, metadata={"identity": "unless default"})
    """Seconds that a call may take; null: as long as it wants."""

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "unscorable"):
            raise ValueError(f"on_error is {self.on_error!r}; it is raise or unscorable")
        check_seconds("feedback.timeout", self.timeout)
        accepted(load(self.path), self.path)

    def __call__(self, X: Instance, Z: Trajectories, seed: Seed) -> Scores:
        function = load(self.path)
        keywords = accepted(function, self.path)
        rewards_B = np.full(len(Z.episode_offsets) - 1, np.nan)
        late = []
        for b, episode in enumerate(Z.episodes):
            given = arguments(X.problems[b // Z.attempts], episode, seed.fold("episode", b))
            try:
                value = within(self.timeout, function, **{name: given[name] for name in keywords})
            except TimeOut:
                late.append({"episode": b, "read": "time-out"})
                continue
            # the boundary to code that is not ours: any error is told, or is data
            except Exception as error:
                if self.on_error == "unscorable":
                    continue
                raise ValueError(
                    f"{self.path} raised {type(error).__name__} on episode {b}: {error}; "
                    "mend it, or set on_error to unscorable"
                ) from error
            rewards_B[b] = validated(value, self.path, b)
        meta = {"components": [self.path], **({"exogenous": late} if late else {})}
        return Scores(meta, {"rewards": rewards_B})


def arguments(problem: Any, episode: Any, seed: Seed) -> dict[str, Any]:
    """Every keyword and its value, copied so that no function can write into a record."""
    problem, episode = copy.deepcopy(problem), copy.deepcopy(episode)
    text = [{"role": "user", "content": problem["text"]}] if "text" in problem else []
    return {
        "problem": problem,
        "messages": problem.get("messages", text),
        "completion": "\n".join(turn["action"]["text"] for turn in episode["turns"]),
        "answer": problem.get("answer"),
        "episode": episode,
        "seed": seed.hex,
    }
