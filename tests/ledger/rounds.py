"""Synthetic rounds: tiny contents, real identifiers, the shape of Record.exact()."""

import torch

from harness.forms import Artifact, Document, Instance, Lesson, Scores, Trajectories
from harness.identity import Version
from harness.ledger import record
from harness.seeds.independent import Independent

LAW = Independent()


def state(n, salt=""):
    tensors = {"w": torch.full((3,), float(n))}
    return [Artifact(kind, {"salt": salt}, tensors) for kind in ("model", "optimizer")]


def contents(n, salt=""):
    return {
        "X": Instance({"n": n}), "Z": Trajectories({"n": n, "salt": salt}),
        "F": Scores({"n": n, "salt": salt}), "G": Lesson({"n": n, "salt": salt}),
    }  # fmt: skip


def ids(state):
    return {"model": state[0].id, "optimizer": state[1].id}


def begin(root="1", arm="main", store=None):
    if store is not None:
        for value in state(0):
            store.put(value)
    return record.genesis(
        state=ids(state(0)), law=LAW, root=root, arm=arm, feedback="reals", credit="reals",
        costs={"tokens": "1", "seconds": "s"},
    )  # fmt: skip


def exact(parent, *, accept=True, salt="", root="1", arm="main", store=None, **changes):
    """The exact part of the round after an entry; its contents go to the store."""
    n = parent.n + 1
    made, proposal = contents(n, salt), state(n + 1, salt)
    for value in [*made.values(), *proposal] if store is not None else []:
        store.put(value)
    starting = dict(parent.document.resulting)
    version = Version.of(LAW).exact()
    return {
        "n": n, "T": version, "nu": {"a": starting["model"], "iota": Document({}).id},
        "upsilon": version, **{name: value.id for name, value in made.items()},
        "d": "accept" if accept else "reject", "starting": starting, "proposed": ids(proposal),
        "resulting": ids(proposal) if accept else starting,
        "omega": LAW.draw(root, arm, n).exact(), "v": dict.fromkeys("SRFCUA", version),
        "c": {"tokens": str(10 + n), "steps": "2"}, **changes,
    }  # fmt: skip


def sealed(n, **more):
    metrics = {"reward/mean": n / 8, "reward/std": float("nan"), "policy/kl": float("inf")}
    metrics |= {f"rollout/stop/{i}": float(i) for i in range(15)}
    return {
        "metered": {"seconds": 0.1 * (n + 1)}, "metrics": metrics, "platform": {"os": "x"}, **more
    }  # fmt: skip


def append(lineage, parent=None, **how):
    """Append one synthetic round, at the head if no parent is given."""
    branch = how.pop("branch", "main")
    given = {k: how.pop(k) for k in ("artifacts", "attempt", "step") if k in how}
    parent = parent or lineage.head(branch)
    document = exact(parent, **how)
    return lineage.append(parent, document, sealed(parent.n + 1), branch=branch, **given)
