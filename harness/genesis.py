"""The record that a lineage begins with, and what a lineage keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.config import Experiment
from harness.ledger import record as records
from harness.ledger.lineage import Lineage
from harness.round import Maps, State


def genesis_of(experiment: Experiment, maps: Maps, initial: State) -> dict[str, Any]:
    """The exact part of the genesis record."""
    dimensions = {d["name"]: d["unit"] for d in maps.A.dimensions()}  # type: ignore[attr-defined]
    return records.genesis(
        state=initial.exact(), law=experiment.law, root=experiment.root, arm=experiment.arm,
        feedback={"kind": "feedback", "form": "rewards in R, or unscorable"},
        credit={"kind": "credit", "form": "packed tokens with advantages in R"}, costs=dimensions,
    )  # fmt: skip


def check_genesis(lineage: Lineage, exact: Mapping[str, Any]) -> None:
    """A lineage keeps its first state, its seed law and its root, and the arm of its genesis."""
    began = lineage.genesis.document.exact["genesis"]
    now = exact["genesis"]
    names = {"state": "its first state", "costs": "its cost dimensions"}
    for key, what in names.items():
        if began[key] != now[key]:
            raise ValueError(
                f"the lineage {lineage.name!r} began with another {key}; a lineage keeps {what}, "
                "so give another lineage.name"
            )
    for key, what in {"root": "seeds.root", "law": "seed law"}.items():
        if began["seeds"][key] != now["seeds"][key]:
            raise ValueError(
                f"the lineage {lineage.name!r} began with {what} {began['seeds'][key]!r}, not "
                f"{now['seeds'][key]!r}; a lineage keeps it, so give another lineage.name"
            )
