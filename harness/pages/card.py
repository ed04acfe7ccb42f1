"""`card.md`: a round on one card, for the note of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from harness.identity import Version
from harness.pages.reading import Reading
from harness.pages.text import cell, number, short, visible

LIMIT = 7000
"""Characters of a card."""


def card(reading: Reading, name: str, links: Mapping[str, str]) -> str:
    """The card; its tables are shortened until it fits."""
    for rows in (24, 12, 6, 3, 1, 0):
        text = _card(reading, name, links, rows)
        if len(text) <= LIMIT:
            break
    assert len(text) <= LIMIT, "a card without tables fits"
    return text


def _card(reading: Reading, name: str, links: Mapping[str, str], rows: int) -> str:
    record, (mean, std) = reading.record, reading.reward
    decision = "accepted" if reading.accepted else "REJECTED"
    episodes, sampled = len(reading.rewards_B), int(reading.sampled_B.sum())
    ended = ", ".join(f"{count} {words}" for words, count in reading.stops())
    gates = [
        (gate["name"], "passed" if gate["passed"] else "**not passed**", _numbers(gate["numbers"]))
        for gate in reading.gates
    ]
    cost = {**record.cost.computed, **record.cost.metered}
    parts = [
        f"## {cell(name)}, round {record.n}: {decision}",
        f"Mean reward **{number(mean)}** ± {number(std)}, {number(episodes)} episodes "
        f"({number(int(record.Z.problems))} problems × {number(reading.attempts)} attempts), "
        f"{number(sampled)} sampled tokens. Ends: {ended}.",
        _rejection(reading),
        _table(("gate", "verdict", "numbers"), gates, rows),
        _table(("measured", "value"), [(k, number(v)) for k, v in reading.metrics.items()], rows),
        _table(("cost", "amount"), [(k, number(v)) for k, v in cost.items()], rows),
        _table(("content", "identifier"), identifiers(reading), rows),
        _table(
            ("map", "version", "settings"),
            [(k, v.name, short(v.settings)) for k, v in versions(reading)],
            rows,
        ),
        _links(links, rows),
        _commands(name, record.n),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def identifiers(reading: Reading) -> list[tuple[str, str]]:
    """What the round read and made, by name, with identifiers in full."""
    record = reading.record
    states = {
        "starting": record.starting, "proposed": record.proposal.state,
        "resulting": record.resulting,
    }  # fmt: skip
    return [
        ("instance X", record.X.id), ("trajectories Z", record.Z.id), ("feedback F", record.F.id),
        ("credit Γ", record.G.id), ("inference ι", record.stamp.inference),
        *((f"{when} model", state.model.id) for when, state in states.items()),
        *((f"{when} optimizer", state.optimizer.id) for when, state in states.items()),
    ]  # fmt: skip


def versions(reading: Reading) -> list[tuple[str, Version]]:
    """The exact versions of the six maps, the task and the environment."""
    record = reading.record
    return [*record.versions.items(), ("task", record.task), ("environment", record.environment)]


def _rejection(reading: Reading) -> str:
    if reading.accepted:
        return ""
    failed = [cell(gate["name"], 40) for gate in reading.gates if not gate["passed"]][:8]
    because = f" not passed: {', '.join(failed)}." if failed else ""
    return f"**The next round starts from the same state;**{because}"


def _numbers(numbers: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in list(numbers.items())[:6])


def _table(head: Sequence[str], body: Sequence[Iterable[str]], rows: int) -> str:
    """A markdown table of at most `rows` rows, and how many more there are."""
    if not body or not rows:
        return ""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(_cell(x) for x in row)} |" for row in body[:rows]]
    more = len(body) - rows
    return "\n".join([*lines, *([f"\n{more} more rows are in the record."] if more > 0 else [])])


def _cell(text: str) -> str:
    if text == "**not passed**":
        return text
    return short(text) if text.startswith("sha256:") else cell(text)


def _links(links: Mapping[str, str], rows: int) -> str:
    shown = [f"[{cell(label)}](<{address}>)" for label, address in links.items()]
    return " · ".join(link for link in shown[:rows] if len(link) < 400)


def _commands(name: str, n: int) -> str:
    address = shlex.quote(visible(f"{name[:200]}@{n}"))
    lineage = shlex.quote(visible(name[:200].split("@")[0]))
    lines = (
        f"show {address}      # this record in full",
        f"replay {address}    # run it again, and compare",
        f"verify {lineage}    # check its lineage",
    )
    return "\n".join(f"    python -m harness {line}" for line in lines)
