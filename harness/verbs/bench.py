"""`bench kernels`: every kernel's bench in one command."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer


def main(
    what: Annotated[str, typer.Argument(help="What to measure: kernels, or one kernel's name.")],
    results: Annotated[Path, typer.Option(help="The CSV that rows are added to.")] = Path(
        "sweeps/results/kernels.csv"
    ),
    dry: Annotated[bool, typer.Option("--dry", help="Small shapes, and nothing is kept.")] = False,
) -> None:
    """Measure kernels against eager torch, torch.compile and Liger, interleaved in one run.

    On a GPU the shapes are those of a large model, and the floor of plain matrix products is
    measured beside; on a CPU the torch paths are measured at smaller ones.
    """
    from harness.kernels.measure import to_csv

    folder = Path(__file__).resolve().parent.parent / "kernels"
    names = sorted(path.parent.name for path in folder.glob("*/bench.py"))
    chosen = names if what == "kernels" else [name for name in names if name == what]
    if not chosen:
        raise ValueError(f"{what!r} cannot be measured; kernels can, or one of {', '.join(names)}")
    keep = to_csv(results) if not dry else (lambda row: None)

    def row(values: dict[str, object]) -> None:
        keep(values)
        typer.echo(f"{values['kernel']:<18} {values['provider']:<22} {values['shape']:<24} "
                   f"{float(str(values['seconds'])):10.6f} s  ratio {values['ratio']}")  # fmt: skip

    for name in chosen:
        importlib.import_module(f"harness.kernels.{name}.bench").main(row, dry)
