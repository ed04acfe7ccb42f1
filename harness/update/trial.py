"""Both ends of an update, each to be run as a policy: for gates that evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.round import Seed, State
from harness.work import Work


@dataclass(frozen=True)
class Trial:
    """The engine holds one of the two states; asking for the other exchanges them."""

    engine: Any
    starting: State
    proposed: State
    seed: Seed
    """ω_update."""

    def policy(self, proposed: bool, inference: Any) -> Any:
        """π of M̃, or of M."""
        state = self.proposed if proposed else self.starting
        self.engine.hold((state.model.id, state.optimizer.id))
        return self.engine.resident.policy(state.model, inference)

    @property
    def leads(self) -> bool:
        return bool(self.engine.world.leads)

    def say(self, value: Any) -> Any:
        """A JSON value of rank 0, on every rank."""
        return self.engine.world.say(value)


def judged(gates: Mapping[str, Any], report: dict[str, Any], trial: Trial) -> bool:
    """Whether every gate passes; the verdicts in order, and what evaluations did, go to the report.

    Gates that evaluate are asked last, and roll out only where all others pass.
    """
    found = {n: gate(report) for n, gate in gates.items() if not hasattr(gate, "evaluate")}
    work: list[Work] = []
    for name in [name for name in gates if name not in found]:
        wanted = all(verdict["passed"] for verdict in found.values())
        found[name], done = gates[name].evaluate(report, trial, name, wanted)
        work += done
    report["gates"] = [found[name] for name in gates]
    if work:
        total = [asdict(each) for each in work]
        report["evaluation"] = {key: sum(row[key] for row in total) for key in total[0]}
    return all(verdict["passed"] for verdict in found.values())
