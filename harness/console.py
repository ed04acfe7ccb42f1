"""What people see while rounds run: the phase, speed, reward and cost; one line a round; a summary.

Nothing here is read by a map.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

PHASES = {
    "S": "drawing problems", "R": "rolling out", "F": "feedback", "C": "credit", "U": "updating",
    "A": "accounting", "L": "recording",
}  # fmt: skip


class View:
    """The terminal's view of a lineage: a live line where there is a terminal, lines otherwise."""

    def __init__(self, name: str, branch: str, rounds: int, done: int,
                 spent: Mapping[str, float] | None = None) -> None:  # fmt: skip
        self.console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        self.name, self.branch, self.rounds = name, branch, rounds
        self.tokens, self.since = 0, time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"), console=self.console, transient=True,
            disable=not sys.stdout.isatty(),
        )  # fmt: skip
        self.task: TaskID = self.progress.add_task(name, total=rounds, completed=done, note="")
        self.standing = ""
        self.spent = dict(spent or {})

    def __enter__(self) -> View:
        where = "" if self.branch == "main" else f", branch {self.branch}"
        self.console.print(f"[bold]{self.name}[/]{where}: rounds to {self.rounds}")
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def phase(self, name: str) -> None:
        self.tokens, self.since = 0, time.monotonic()
        self.progress.update(self.task, note=f"{PHASES[name]}{self.standing}")

    def sampled(self, count: int) -> None:
        self.tokens += count
        rate = self.tokens / max(time.monotonic() - self.since, 1e-3)
        note = f"{PHASES['R']}, {rate:,.0f} tokens/s{self.standing}"
        self.progress.update(self.task, note=note)

    def round(self, n: int, metrics: Mapping[str, float], cost: Mapping[str, Any], report: Any,
              identity: str, found: Mapping[str, float]) -> None:  # fmt: skip
        """One line: what came of a round.

        found: seconds that were avoided, by map.
        """
        accepted = metrics["decision/accepted"] > 0
        failed = [g["name"] for g in report["gates"] if not g["passed"]]
        verdict = "[green]accept[/]" if accepted else f"[red]reject[/] ({', '.join(failed)})"
        for name, value in cost.items():
            self.spent[name] = self.spent.get(name, 0.0) + float(value)
        flops = self.spent.get("flops/rollout", 0.0) + self.spent.get("flops/update", 0.0)
        self.standing = (
            f", reward {metrics['reward/mean']:.3f}, so far "
            f"{self.spent['tokens/sampled']:,.0f} tokens and {flops:.1e} FLOP"
        )
        seconds = metrics.get("seconds/total", 0.0)
        self.console.print(
            f"{n:4d}  reward {metrics['reward/mean']:6.3f}  {verdict}  "
            f"{shift(metrics)}  "
            f"{int(cost['tokens/sampled']):,} tokens  {seconds:.2f} s  "
            f"{found_again(found)}[dim]{identity[7:19]}[/]"
        )
        self.progress.update(self.task, completed=n + 1)

    def say(self, text: str) -> None:
        self.console.print(text)

    def warn(self, text: str) -> None:
        """Something that should not be."""
        self.console.print(text, style="red", markup=False)

    def summary(self, rows: Mapping[str, str]) -> None:
        for name, value in rows.items():
            self.console.print(f"[dim]{name:<12}[/]{value}", soft_wrap=True)


def found_again(seconds: Mapping[str, float]) -> str:
    """What of a round was found in the memo, for its line."""
    if not seconds:
        return ""
    return f"[cyan]{' '.join(seconds)} found: {sum(seconds.values()):.2f} s avoided[/]  "


def avoided(cost: Mapping[str, float]) -> str:
    """What was avoided in all, in a few words."""
    seconds = sum(v for k, v in cost.items() if k.startswith("seconds/"))
    flops = sum(v for k, v in cost.items() if k.startswith("flops/"))
    work = f"{cost.get('tokens/sampled', 0):,.0f} sampled tokens and {flops:.1e} FLOP"
    return f"{seconds:.1f} s, {work}, found in the memo"


def shift(metrics: Mapping[str, float]) -> str:
    """How far an update went: of the proposed policy where it was scored, else of the gradient."""
    if "policy/kl" not in metrics:
        return f"grad norm {metrics['grad_norm']:.3f}"
    return f"kl {metrics['policy/kl']:.4f}  entropy {metrics['policy/entropy']:.2f}"
