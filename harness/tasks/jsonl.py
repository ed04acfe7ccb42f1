"""The user's own prompts, from a JSONL file or a Hugging Face data set folder.

    x ~ Uniform{row_0, …, row_{N-1}},   the empirical law: every row has probability 1/N

The law is named by the content's digest (of a file, what `sha256sum` prints), not by where it lies.
A row becomes a problem: its messages, its answer, its number, and its other fields for a reward
function to use; the policy sees the messages alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from harness.identity import canonical, digest
from harness.round import Seed
from harness.tasks.uniform import below

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Jsonl:
    """The empirical law of a file.

    Raises ValueError for a file that is missing, empty, not JSON, or lacks a field, with its line.
    Degenerate: a file of one row is one problem.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    path: str = field(metadata={"identity": False})
    """A JSONL file, or a folder that `datasets` saved (`split` chooses from one with splits)."""
    prompt: str = "prompt"
    """The field with the user's text."""
    messages: str | None = None
    """The field with chat messages, instead of `prompt`."""
    answer: str | None = "answer"
    """The field with the answer; None where there is none."""
    split: str | None = None
    digest: str | None = None
    """`sha256:…` of the content: filled in, or refused where it is another."""
    _problems: tuple[dict[str, Any], ...] = field(
        default=(), init=False, repr=False, compare=False, metadata={"identity": False}
    )

    def __post_init__(self) -> None:
        path = Path(self.path).expanduser()
        if not path.exists():
            raise ValueError(f"task.path is {self.path}, which does not exist; give a JSONL file")
        found, rows = _folder(path, self.split) if path.is_dir() else _file(path)
        if self.digest not in (None, found):
            raise ValueError(f"task.digest is {self.digest}, but {self.path} has {found}")
        if not rows:
            raise ValueError(f"{self.path} is empty; it needs one row at least")
        problems = [self._problem(where, i, row) for i, (where, row) in enumerate(rows)]
        object.__setattr__(self, "digest", found)
        object.__setattr__(self, "_problems", tuple(problems))

    @property
    def size(self) -> int:
        """Rows, all equally likely."""
        return len(self._problems)

    def nth(self, i: int) -> dict[str, Any]:
        return json.loads(json.dumps(self._problems[i]))

    def draw(self, seed: Seed) -> dict[str, Any]:
        return self.nth(below(seed, self.size))

    def support(self) -> Iterator[tuple[dict[str, Any], float]]:
        """Every problem with its probability."""
        return ((self.nth(i), 1 / self.size) for i in range(self.size))

    def probability(self, problem: dict[str, Any]) -> float:
        row = problem.get("row")
        if not isinstance(row, int) or not 0 <= row < self.size:
            return 0.0
        return 1 / self.size if problem == self._problems[row] else 0.0

    def _problem(self, where: str, i: int, row: Any) -> dict[str, Any]:
        if not isinstance(row, dict):
            raise ValueError(f"{where} is a {type(row).__name__}; a row is a JSON object")
        asked = self.prompt if self.messages is None else self.messages
        needed = [asked] if self.answer is None else [asked, self.answer]
        for name in needed:
            if name not in row:
                raise ValueError(f"{where} has no field {name!r}; it has {', '.join(sorted(row))}")
        messages = _messages(where, asked, row[asked], chat=self.messages is not None)
        problem = {
            "messages": messages,
            "row": i,
            "fields": {name: value for name, value in row.items() if name not in needed},
        }
        if self.answer is not None:
            problem["answer"] = row[self.answer]
        try:
            canonical(problem)
        except ValueError as error:
            raise ValueError(f"{where} cannot enter a record: {error}") from None
        return problem


def _messages(where: str, name: str, value: Any, *, chat: bool) -> list[dict[str, str]]:
    if not chat:
        if not isinstance(value, str):
            raise ValueError(f"{where} has {name} {value!r}; a prompt is a text")
        return [{"role": "user", "content": value}]
    good = isinstance(value, list) and all(
        isinstance(m, dict) and m.get("role") in ROLES and isinstance(m.get("content"), str)
        for m in value
    )
    if not good or not value:
        raise ValueError(
            f"{where} has {name} that are no chat; give a list of objects with role "
            f"({', '.join(ROLES)}) and content"
        )
    return [{"role": m["role"], "content": m["content"]} for m in value]


def _file(path: Path) -> tuple[str, list[tuple[str, Any]]]:
    """Digest and rows of a file, each with a name for messages; blank lines are skipped."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}; give UTF-8") from None
    rows = []
    # by newlines alone: other line separators may stand within JSON strings
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append((f"{path} line {number}", json.loads(line)))
        except (ValueError, RecursionError) as error:
            why = getattr(error, "msg", "nested too deeply")
            raise ValueError(f"{path} line {number} is not JSON: {why}") from None
    return "sha256:" + hashlib.sha256(content).hexdigest(), rows


def _folder(path: Path, split: str | None) -> tuple[str, list[tuple[str, Any]]]:
    """Digest and rows of a data set that `datasets` saved to a folder."""
    try:
        import datasets
    except ImportError:
        raise ValueError(
            f"{path} is a folder, which needs the package datasets; pip install 'harness[data]'"
        ) from None
    try:
        saved: Any = datasets.load_from_disk(str(path))
    except (OSError, ValueError):
        raise ValueError(
            f"{path} is not a folder that datasets' save_to_disk made; give one, or a JSONL file"
        ) from None
    if isinstance(saved, dict):
        if split not in saved:
            raise ValueError(
                f"task.split is {split!r}; {path} has the splits {', '.join(sorted(saved))}"
            )
        saved = saved[split]
    rows = saved.to_list()
    try:
        found = digest("rows", canonical(rows))
    except ValueError as error:
        raise ValueError(f"{path} cannot enter a record: {error}") from None
    return found, [(f"{path} row {i}", row) for i, row in enumerate(rows)]
