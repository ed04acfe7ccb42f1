"""`repair`: complete what a crash left."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.verbs._ledger import Experiment, Uri, lineages, opened


def main(
    lineage: Annotated[str, typer.Argument(help="Its name; all without one.")] = "",
    adopt: Annotated[str, typer.Option(help="The run of a whole attempt, to append.")] = "",
    uri: Uri = "",
    experiment: Experiment = "harness",
) -> None:
    """Finish curves, hints and statuses, and list attempts. It alters no committed record."""
    from harness.ledger import repair

    ledger = opened(uri, experiment)
    for found in lineages(ledger, lineage):
        if adopt and any(attempt.run == adopt for attempt in found.attempts()):
            entry = repair.adopt(found, adopt)
            print(f"{found.name}: round {entry.n} was appended from the attempt {adopt}")
            adopt = ""
        for sentence in repair.repair(found):
            print(f"{found.name}: {sentence}")
        whole = {attempt.run for attempt, _ in repair.adoptable(found)}
        for attempt in found.attempts():
            offer = f"; `repair --adopt {attempt.run}` appends it" if attempt.run in whole else ""
            state = "under way" if attempt.alive else attempt.state
            print(f"{found.name}: attempt {attempt.run} at round {attempt.n}: {state}{offer}")
    if adopt:
        raise ValueError(f"no attempt has the run {adopt!r}; `repair` lists the attempts")
