"""A recorded round run again, and compared stage by stage.

The definition's own `execute` runs the maps; the seeds are those of the record, and after a stage
that differs the recorded value goes on, so that every verdict is of its own map. Cost is compared
in its computed part, the readings κ are those of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.exactness import divergence
from harness.exactness.divergence import Divergence
from harness.exactness.recorded import Given, Recorded, Unavailable
from harness.fingerprint import apply_flags
from harness.ledger.record import Document
from harness.round import Record, State, execute

STAGES = "SRFCUA"
NEED_STATE = frozenset("RUA")
SAME, DIFFERS, RAISES, CANNOT, OPEN = "same", "differs", "raises", "cannot", "open"


@dataclass(frozen=True)
class Row:
    """A stage and its verdict."""

    stage: str
    verdict: str
    recorded: str = ""
    replayed: str = ""
    divergence: Divergence | None = None
    reason: str = ""

    @property
    def good(self) -> bool:
        return self.verdict in (SAME, OPEN)


@dataclass
class Replayed:
    """What a replay found."""

    name: str
    identity: str
    rows: list[Row] = field(default_factory=list)
    open: list[Any] = field(default_factory=list)
    """η: what the round read from outside; empty if it is closed."""
    resulting: State | None = None
    """The state after the round, where U was run again and came out the same."""

    @property
    def good(self) -> bool:
        return all(row.good for row in self.rows)

    @property
    def first(self) -> Row | None:
        """The first stage that is not what is recorded."""
        return next((row for row in self.rows if not row.good), None)


class Comparing:
    """Applies the maps that are wanted and compares; takes the others from the record."""

    def __init__(self, recorded: Recorded, wanted: Sequence[str], found: Replayed) -> None:
        self.recorded, self.wanted, self.found = recorded, list(wanted), found
        self.proposal: Any = None

    def __call__(self, name: str, thunk: Callable[[], Any], /) -> Any:
        if name not in self.wanted:
            return self.recorded.value(name)
        try:
            value = thunk()
        except Unavailable:
            raise
        # a map that raises where it once gave a value has diverged, whatever it raises
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self.found.rows.append(Row(name, RAISES, reason=text))
            return self.recorded.value(name)
        row = self.compare(name, value)
        self.found.rows.append(row)
        if name == "U":
            self.proposal = value
        return value if row.good else self.recorded.value(name)

    def readings(self) -> Mapping[str, float]:
        """κ, fed back."""
        return {**self.recorded.sealed["readings"], **self.recorded.sealed["metered"]}

    def compare(self, name: str, value: Any) -> Row:
        recorded, own = self.spelt(name, value)
        if recorded == own:
            return Row(name, SAME, recorded, own)
        return Row(name, DIFFERS, recorded, own, self.locate(name, value))

    def spelt(self, name: str, value: Any) -> tuple[str, str]:
        """The recorded and the replayed identifier of a stage's result."""
        exact = self.recorded.exact
        if name == "U":
            state = value.state.exact()
            old = [exact["d"], exact["proposed"]["model"], exact["proposed"]["optimizer"]]
            return " ".join(old), " ".join([value.decision, state["model"], state["optimizer"]])
        if name == "A":
            own = {k: str(v) for k, v in value.computed.items()}
            return _flat(exact["c"]), _flat(own)
        return exact[{"S": "X", "R": "Z", "F": "F", "C": "G"}[name]], value.id

    def locate(self, name: str, value: Any) -> Divergence | None:
        if name == "U":
            return divergence.of_update(self.recorded, value)
        if name == "A":
            return divergence.of_cost(self.recorded.exact["c"], value.computed)
        try:
            old = self.recorded.value(name)
        except Unavailable:
            return None
        roll = self.recorded.session.maps.R
        return divergence.of_value(name, old, value, self.recorded.seeds, roll)


def replay(
    recorded: Recorded, stages: Sequence[str] = STAGES, *, state: State | None = None
) -> Replayed:
    """Run stages of a record again and compare.

    state: the starting state, where it is at hand; else it is found in the store or computed again.
    """
    apply_flags(recorded.sealed.get("flags", {}))
    session, entry = recorded.session, recorded.entry
    found = Replayed(recorded.name, entry.identity)
    wanted = list(stages)
    _draw(recorded, found, wanted)
    _exogenous(recorded, found, wanted)
    start, reason = _start(recorded, wanted, state)
    if reason:
        wanted = [name for name in wanted if name not in NEED_STATE]
    comparing = Comparing(recorded, wanted, found)
    resolve = session.resident.policy if "R" in wanted else recorded.stamped
    e = session.experiment
    try:
        record = execute(
            start, entry.n, task=e.task, environment=e.environment, inference=session.inference,
            law=Given(recorded.seeds), root=e.root, arm=session.arm, maps=session.maps,  # type: ignore[arg-type]
            resolve=resolve, stage=comparing,
        )  # fmt: skip
    except Unavailable as error:
        done = {row.stage for row in found.rows}
        found.rows += [Row(s, CANNOT, reason=str(error)) for s in wanted if s not in done]
        return _ordered(found)
    found.rows += [Row(s, CANNOT, reason=reason) for s in stages if s in NEED_STATE and reason]
    if set(stages) == set(STAGES) and not reason:
        _whole(recorded, record, found)
    if comparing.proposal is not None and found.good:
        found.resulting = (
            comparing.proposal.state if entry.document.exact["d"] == "accept" else start
        )
    return _ordered(found)


def _draw(recorded: Recorded, found: Replayed, wanted: Sequence[str]) -> None:
    """ω_n is what the declared law draws."""
    if list(wanted) != list(STAGES):
        return
    e, old = recorded.session.experiment, recorded.exact["omega"]
    own = e.law.draw(e.root, recorded.session.arm, recorded.entry.n).exact()
    part = next((p for p in own if old[p] != own[p]), None)
    place = part and Divergence("ω", f"ω_{part}", "seed", old[part], own[part], {})
    verdict = SAME if part is None else DIFFERS
    found.rows.append(Row("ω", verdict, _flat(old), _flat(own), place or None))


def _exogenous(recorded: Recorded, found: Replayed, wanted: list[str]) -> None:
    """An open round is replayed on its recorded inputs: what read them is taken as it is."""
    for name in "RF":
        try:
            value = recorded.value(name)
        except Unavailable:
            continue
        inputs = list(value.meta.get("exogenous", []))
        found.open += inputs
        if inputs and name in wanted:
            wanted.remove(name)
            some = f"{len(inputs)} input{'s' * (len(inputs) > 1)} from outside"
            reason = f"{some} recorded: taken, not run again"
            found.rows.append(Row(name, OPEN, value.id, value.id, reason=reason))


def _start(
    recorded: Recorded, wanted: Sequence[str], state: State | None
) -> tuple[State, str]:  # fmt: skip
    """The starting state, and why there is none."""
    if not NEED_STATE & set(wanted):
        return recorded.named_state(), ""
    if state is not None and state.exact() == recorded.exact["starting"]:
        return state, ""
    try:
        return recorded.session.state_at(recorded.parent), ""
    except ValueError as error:
        return recorded.named_state(), str(error)


def _whole(recorded: Recorded, record: Record, found: Replayed) -> None:
    """The identity of the whole record: versions, stamp and states included."""
    document = recorded.entry.document
    own = record.exact()
    again = Document(document.parent, None, own, {}, document.schema)
    if again.identity == document.identity:
        found.rows.append(Row("r", SAME, document.identity, again.identity))
        return
    names = [name for name in own if own[name] != document.exact.get(name)]
    place = None
    if names:
        place = Divergence(
            "r", f"the record's {names[0]}", names[0], document.exact.get(names[0]), own[names[0]],
            {"differs": names},
        )  # fmt: skip
    found.rows.append(Row("r", DIFFERS, document.identity, again.identity, place))


def _ordered(found: Replayed) -> Replayed:
    order = "ω" + STAGES + "r"
    found.rows.sort(key=lambda row: order.index(row.stage))
    return found


def _flat(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={values[name]}" for name in sorted(values))
