"""The verbs of `python -m harness`: one file each, found by its name.

A verb's module has one function, `main`, whose signature is the command line and whose docstring is
the help. It imports what is heavy inside. ValueError: the request was wrong (exit code 2, one
sentence); typer.Exit(1): it ran, and the answer is no.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup


def names() -> list[str]:
    """Every verb; a trailing underscore of a file's name is not part of its verb."""
    files = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name.rstrip("_").replace("_", "-") for name in files if name[0] != "_")


class Verbs(TyperGroup):
    """A group that imports a verb only where it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in names():
            return None
        file = cmd_name.replace("-", "_")
        keyword = importlib.util.find_spec(f"{__name__}.{file}") is None
        module = importlib.import_module(f"{__name__}.{file}{'_' * keyword}")
        verb = typer.Typer(add_completion=False)
        verb.command(cmd_name)(module.main)
        return typer.main.get_command(verb)


cli = typer.Typer(cls=Verbs, add_completion=False, no_args_is_help=True)


@cli.callback()
def _group() -> None:
    """Look at, check and mend what rounds have left."""


def app(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; returns its exit code."""
    from harness.ledger.entry import Conflict
    from harness.ledger.record import Broken
    from harness.store import Corrupt

    command = typer.main.get_command(cli)
    try:
        code = command.main(
            list(sys.argv[1:] if arguments is None else arguments),
            prog_name="python -m harness", standalone_mode=True,
        )  # fmt: skip
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except (Broken, Conflict, Corrupt) as error:
        print(error, file=sys.stderr)
        return 1
    return int(code or 0)
