"""A lineage, from its genesis or its head on: execute, seal, append, and show what came of it.

The ledger alone says where a lineage stands.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from harness import bound, budget, identity, pages, ranks
from harness.accounting.flops import attention_width, matrix_elements
from harness.changes import changes
from harness.config import Experiment, build
from harness.console import View, avoided
from harness.finder import Finder, Memory
from harness.fingerprint import archive, fingerprint, flags, machine
from harness.genesis import check_genesis, genesis_of
from harness.ledger import address
from harness.ledger.attempt import Attempt, terminable
from harness.ledger.checkpoint import Checkpoint
from harness.ledger.entry import Entry
from harness.ledger.ledger import Ledger
from harness.ledger.lineage import Lineage
from harness.policies.model import Model, advice, load_tokenizer
from harness.policies.resident import Resident
from harness.preflight import no_branch, preflight
from harness.promise import Promise, kept, pending, promised
from harness.round import Decision, Maps, Record, Seeds, State, execute
from harness.stages import Stages
from harness.states import States, Writer
from harness.store import Store
from harness.stored import at_rest
from harness.summary import shown, summary_of
from harness.update.engine import initial_optimizer
from harness.world import ALONE, World

ENGINE = [sys.modules[Resident.__module__], bound]
"""What runs policies, models and references, beside the maps: modules."""


def run(experiment: Experiment, words: Sequence[str] = ()) -> int:
    """Run the rounds that a lineage still lacks; the exit code."""
    preflight(experiment)
    if experiment.ranks > 1 and ranks.started() is None:
        threads = max(experiment.inference.threads, experiment.maps.U.threads)  # type: ignore[attr-defined]
        code = ranks.start(words, experiment.ranks, threads)
        if code == 1:
            fail_attempts(experiment)
        return code
    world = ranks.join(experiment.ranks)
    with ranks.sharing(world):
        code = rounds(experiment, world) if world.leads else ranks.follow(experiment, world)
        world.call("end")
    return code


def fail_attempts(experiment: Experiment) -> None:
    """Mark what the ranks could not: the attempt of a rank 0 that was killed."""
    ledger = Ledger.open(experiment.ledger["uri"], experiment.ledger["experiment"])
    if (lineage := ledger.find(experiment.lineage)) is None:
        return
    for spent in lineage.attempts():
        if spent.status == "RUNNING" and not spent.alive:
            attempt = Attempt(lineage, lineage.genesis, spent.branch, spent.run, "")
            began = lineage.client.get_run(spent.run).info.start_time / 1000
            attempt.checkpoint(spent.stage, {**spent.cost, "seconds/total": time.time() - began})
            attempt.end("failed")


def rounds(experiment: Experiment, world: World) -> int:
    """What the rank that leads does."""
    began = time.monotonic()
    # first, so that a model that is not there leaves no ledger behind
    model = experiment.model.initial()
    ledger = Ledger.open(experiment.ledger["uri"], experiment.ledger["experiment"])
    said = advice(model)
    session = Session.open(experiment, ledger, model, world)
    # the store has it
    del model
    head = session.start()
    if head.n + 1 >= experiment.rounds:
        print(
            f"nothing to do: {session.lineage.name} has its {head.n + 1} rounds; raise `rounds` to "
            "go on"
        )
        return 0
    state = session.state_at(head)
    spent = spent_by(head)
    view = View(session.lineage.name, experiment.branch, experiment.rounds, head.n + 1, spent)
    stopped = ""
    ends = terminable() if world.size == 1 else ranks.failing()
    with view, ends, session.lineage.running():
        if said:
            view.say(f"[yellow]{said}[/]")
        if head.n >= 0:
            view.say(f"going on after round {head.n} ({head.identity[7:19]})")
            for line in session.changes(head):
                view.say(f"[yellow]{line}[/]")
        while head.n + 1 < experiment.rounds:
            if (stopped := session.overdrawn(head)) != "":
                break
            try:
                head, state = session.advance(head, state, view)
            except budget.Overdrawn as error:
                stopped = str(error)
                break
        session.keep_head(state)
    session.summary(view, head, time.monotonic() - began, stopped)
    return 0


def reopen(ledger: Ledger, lineage: Lineage, entry: Entry) -> Session:
    """The session that a record was made in, from the configuration under its seal."""
    at = entry
    if at.n < 0:
        successors = list(entry.successors)
        if not successors:
            raise ValueError(f"the lineage {lineage.name!r} has no round yet; run one first")
        at = lineage.at(0, successors[0])
    document = dict(at.document.sealed["config"])
    document["lineage"] = {**document["lineage"], "name": lineage.name, "parent": None}
    return Session.open(build(document, lineage.name), ledger)


@dataclass
class Session:
    """A lineage with everything that its rounds are run with."""

    experiment: Experiment
    ledger: Ledger
    lineage: Lineage
    store: Store
    snapshot_every: int
    initial: State
    maps: Maps
    inference: Any
    resident: Resident
    tokenizer: Any
    largest: dict[str, float] = field(default_factory=dict)
    certified: bool | None = None
    writer: Writer = field(default_factory=Writer)

    def __post_init__(self) -> None:
        self.resident.settle = self.writer.wait

    @classmethod
    def open(
        cls, experiment: Experiment, ledger: Ledger, model: Model | None = None,
        world: World = ALONE,
    ) -> Session:  # fmt: skip
        """Find or begin the lineage, and bind the maps to one module in memory."""
        store = Store(experiment.store["root"] or ledger.content_root)
        model = model or experiment.model.initial()
        initial = State(model, initial_optimizer(model))
        resident = Resident(world=world)
        tokenizer = load_tokenizer(model)
        R: Any = experiment.maps.R
        U: Any = experiment.maps.U
        maps = dataclasses.replace(
            experiment.maps,
            U=bound.with_evaluations(dataclasses.replace(U, resident=resident), tokenizer, world),
            R=R if world.size == 1 else dataclasses.replace(R, world=world),
        )  # fmt: skip
        exact = genesis_of(experiment, maps, initial)
        if experiment.parent is not None:
            lineage, _ = address.record(ledger, experiment.parent)
        elif (found := ledger.find(experiment.lineage)) is not None:
            lineage = found
        else:
            if experiment.branch != "main":
                raise ValueError(no_branch(experiment.branch))
            store.put(model)
            store.put(initial.optimizer)  # type: ignore[arg-type]
            sealed = {"platform": machine(), "params": shown(experiment)}
            remote = "://" in store.root
            tags = {"harness.store": store.root if remote else str(Path(store.root).resolve())}
            lineage = ledger.begin(experiment.lineage, exact, sealed, tags=tags)
        check_genesis(lineage, exact)
        inference = experiment.inference.bind(tokenizer)
        R = maps.R
        if getattr(R, "reference", None) is not None:
            reference = bound.reference_model(
                R.reference.source, model, lambda name: store.get(Model, name, check=True)
            )
            store.put(reference)
            maps = dataclasses.replace(maps, R=bound.with_reference(maps.R, reference, inference))
        initial = State(*(at_rest(artifact, store) for artifact in (model, initial.optimizer)))
        return cls(
            experiment, ledger, lineage, store, int(experiment.store["snapshot_every"]), initial,
            maps, inference, resident, tokenizer,
        )  # fmt: skip

    @property
    def states(self) -> States:
        return States(self.lineage, self.store, self.initial, self.maps, self.resident)

    def state_at(self, entry: Entry) -> State:
        """(M, s) after a record."""
        return self.states.at(entry)

    def promised_at(self, entry: Entry) -> State:
        """(M, s) after a record, made where it is asked for if the memo may spare it."""
        if self.memory is None:
            return self.state_at(entry)
        promise = Promise(entry.document.resulting, make=lambda: self.state_at(entry))
        model: Any = self.initial.model
        return promised(promise, model, {"model": model.meta})

    def keep_head(self, state: State) -> None:
        """Store the state to go on from; one that was found again is computed when it is needed."""
        self.writer.wait()
        if pending(state) is None:
            self.states.keep(state)

    @cached_property
    def memory(self) -> Memory | None:
        """Where results of maps are found again; None where nowhere."""
        e = self.experiment
        folder = e.memo.folder(self.store)
        return None if folder is None else Memory(
            e.memo, folder, self.store, self.maps, e.task, e.environment, self.inference,  # type: ignore[arg-type]
            self.fingerprints,
        )  # fmt: skip

    def finder(
        self, state: State, seeds: Seeds, name: str, say: Callable[[str], None]
    ) -> Finder | None:
        """What finds the results of a round of this name."""
        return None if self.memory is None else self.memory.round(state, seeds, name, say)

    def start(self) -> Entry:
        """The record that the next round follows: the head of the branch, or its fork point."""
        branch, parent = self.experiment.branch, self.experiment.parent
        if branch == "main" or branch in self.lineage.forks():
            return self.lineage.head(branch)
        if parent is None:
            raise ValueError(no_branch(branch))
        return address.record(self.ledger, parent)[1]

    def changes(self, head: Entry) -> list[str]:
        """What the rounds from here on are run with that the last one was not."""
        e = self.experiment
        versions = {name: v.exact() for name, v in self.maps.versions().items()}
        versions |= {"T": identity.Version.of(e.task).exact()}
        versions |= {"upsilon": identity.Version.of(e.environment).exact()}
        return changes(head.document, versions, self.inference.id, self.fingerprints)

    def overdrawn(self, head: Entry) -> str:
        """Why the next round cannot be afforded; empty if it can."""
        limits = self.experiment.budget
        if not limits:
            return ""
        if not self.largest and head.n >= 0:
            walked = self.lineage.walk(head.branch)
            self.largest = budget.costliest(e.document for e in walked if e.n >= 0)
        bounds = budget.bounds(self.experiment)
        return budget.overdrawn(limits, self._spent(head), self.largest, bounds, head.n + 1)

    def _spent(self, head: Entry) -> dict[str, float]:
        """What the chain and its attempts have cost."""
        return budget.total(spent_by(head), self.lineage.totals(head.branch)["attempts"])

    def _guard(self, head: Entry, state: State) -> budget.Guard:
        """What counts a round as it runs."""
        limits, model = self.experiment.budget, state.model
        size = matrix_elements(model), attention_width(model.meta["architecture"])  # type: ignore[attr-defined, arg-type]
        return budget.Guard(head.n + 1, limits, self._spent(head) if limits else {}, size)

    def _most(self, state: State, Z: Any, G: Any) -> dict[str, Any]:
        """What a round can cost at most once Γ is known, where U and A say so."""
        A: Any = self.maps.A
        U: Any = self.maps.U
        if not (hasattr(A, "computed") and hasattr(U, "most")):
            return {}
        return dict(A.computed(state, Z, U.most(G)))

    def advance(
        self, head: Entry, state: State, view: View, *,
        given: Mapping[str, Any] | None = None, note: Mapping[str, Any] | None = None,
    ) -> tuple[Entry, State]:  # fmt: skip
        """One round after a head: the new head and its state.

        given: results of maps that are known already; note: what goes under the seal beside.
        """
        n, e, arm = head.n + 1, self.experiment, self.arm
        where = self.lineage.name + ("" if e.branch == "main" else f"@{e.branch}")
        with self.lineage.attempt(head, e.branch) as attempt:
            peak = partial(ranks.peaks, self.resident.world)
            seeds = e.law.draw(e.root, arm, n)
            find = self.finder(state, seeds, f"{where}@{n}", view.warn)
            stages = Stages(
                view, attempt, given or {}, find, self._guard(head, state),
                partial(self._most, state), peak, self.resident.world.size == 1,
            )  # fmt: skip
            counted = {
                name: bound.counting(getattr(self.maps, name), stages.count) for name in "RU"
            }
            maps = dataclasses.replace(self.maps, **counted)
            record = execute(
                state, n, task=e.task, environment=e.environment, inference=self.inference,
                law=e.law, root=e.root, arm=arm, maps=maps, resolve=self.resident.policy,
                stage=stages,
            )  # fmt: skip
            view.phase("L")
            began = time.monotonic()
            attempt.checkpoint("A", stages.spent())
            self._keep_evidence(record, n)
            sealed = self._sealed(record, stages) | dict(note or {})
            artifacts = pages.of(record, decode=self._decode, name=self.lineage.name)
            artifacts["config.yaml"] = self._config
            entry = self.lineage.append(
                head, record.exact(), sealed, branch=e.branch, artifacts=artifacts, attempt=attempt
            )
            if self._due(n) and self._beside(record):
                self.writer.begin(partial(self.states.keep, record.resulting))
            self.lineage.outside(entry, "harness/seconds", time.monotonic() - began)
        if self.largest:
            cost = budget.cost_of(entry.document)
            self.largest = {k: max(v, cost.get(k, 0.0)) for k, v in self.largest.items()}
        accepted = float(record.proposal.decision is Decision.ACCEPT)
        metrics = {**sealed["metrics"], **stages.readings(), "decision/accepted": accepted}
        found = {} if find is None else find.avoided
        view.round(n, metrics, record.cost.computed, record.proposal.report, entry.identity, found)
        return entry, record.resulting

    @property
    def arm(self) -> str:
        return str(self.lineage.genesis.document.exact["genesis"]["seeds"]["arm"])

    def _decode(self, token: int) -> str:
        return str(self.tokenizer.decode([token]))

    @property
    def _config(self) -> bytes:
        from omegaconf import OmegaConf

        return OmegaConf.to_yaml(OmegaConf.create(dict(self.experiment.document))).encode()

    def _keep_evidence(self, record: Record, n: int) -> None:
        """Store X, Z, F, Γ, ι and the source before the commit; and the state, if it is due and is
        not to be written beside the next rollout."""
        for value in (record.X, record.Z, record.F, record.G, self.inference.document, archive()):
            self.store.put(value)
        if self.snapshot_every > 1 and self.certified is None:
            kept(record.starting)
            self.certified = self.states.certify(record)
            if not self.certified:
                raise ValueError(
                    f"store.snapshot_every is {self.snapshot_every}, but running U again did not "
                    "give the same state on this platform; set it to 1"
                )
        if self._due(n) and not self._beside(record):
            self.states.keep(record.resulting)

    def _due(self, n: int) -> bool:
        return (n + 1) % self.snapshot_every == 0

    def _beside(self, record: Record) -> bool:
        """Whether the state may be written while the next rollout runs: it can be made again, and
        its bytes lie here."""
        here = self.resident.world.size == 1 and pending(record.resulting) is None
        return here and bool(self.certified)

    def _sealed(self, record: Record, stages: Stages) -> dict[str, Any]:
        report = {k: v for k, v in record.proposal.report.items() if k != "metrics"}
        return {
            "metered": dict(record.cost.metered), "readings": dict(stages.readings()),
            "metrics": summary_of(record), "report": report, "platform": machine(),
            "flags": flags(), "fingerprints": self.fingerprints,
            "source": archive().id, "config": dict(self.experiment.document),
            "recorded_at": int(time.time()),
            "memo": None if stages.find is None else stages.find.close(record.cost),
        }  # fmt: skip

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Of the maps, the task, the environment, the inference settings and the engine."""
        e = self.experiment
        return {
            **{f.name: fingerprint(getattr(self.maps, f.name)) for f in dataclasses.fields(Maps)},
            "task": fingerprint(e.task), "environment": fingerprint(e.environment),
            "inference": fingerprint(self.inference), "engine": fingerprint(ENGINE),
        }  # fmt: skip

    def summary(self, view: View, head: Entry, seconds: float, stopped: str) -> None:
        if stopped:
            view.say(f"[yellow]{stopped}[/]")
        totals = spent_by(head)
        point = str(Checkpoint(head.branch, head.n, head.seal, None, self.lineage.name))
        uri = self.ledger.uri
        ui = "mlflow ui" if uri == "sqlite:///mlflow.db" else f"mlflow ui --backend-store-uri {uri}"
        view.summary({
            "lineage": f"{self.lineage.name}, {head.n + 1} round{'s' * (head.n != 0)}, "
                       f"{seconds:.1f} s",
            "sampled": f"{totals.get('tokens/sampled', 0):,.0f} tokens",
            **({"avoided": avoided(saved)} if (saved := avoided_by(head)) else {}),
            "head": head.identity,
            "checkpoint": point.removeprefix("checkpoint "),
            "look": f"{ui}    python -m harness log",
        })  # fmt: skip


def avoided_by(head: Entry) -> dict[str, float]:
    """What of it was found in the memo, and not spent."""
    return {k: float(v) for k, v in head.document.sealed.get("avoided", {}).items()}


def spent_by(head: Entry) -> dict[str, float]:
    """What the rounds to a head have cost: exact, of the record itself."""
    return {k: float(v) for k, v in head.document.sealed.get("totals", {}).items()}
