"""Synthetic rounds: tiny contents, real identifiers, the shape of Record.exact()."""

from harness.forms import Document
from harness.identity import Version
from harness.ledger import record
from harness.seeds.independent import Independent

LAW = Independent()


def value(*parts):
    return Document({"parts": list(parts)})


def begin(root="1", arm="main"):
    return record.genesis(
        state={"model": value("M", 0).id, "optimizer": value("s", 0).id},
        law=LAW, root=root, arm=arm, feedback="reals", credit="reals",
        costs={"tokens": "1", "seconds": "s"},
    )  # fmt: skip


def exact(parent, *, accept=True, salt="", root="1", arm="main"):
    """The exact part of the round after an entry."""
    n = parent.n + 1
    proposed = {"model": value("M", n + 1, salt).id, "optimizer": value("s", n + 1, salt).id}
    starting = dict(parent.document.resulting)
    version = Version.of(LAW).exact()
    return {
        "n": n, "T": version, "X": value("X", n).id,
        "nu": {"a": starting["model"], "iota": value("iota").id}, "upsilon": version,
        "Z": value("Z", n, salt).id, "F": value("F", n, salt).id, "G": value("G", n, salt).id,
        "d": "accept" if accept else "reject", "starting": starting, "proposed": proposed,
        "resulting": proposed if accept else starting, "omega": LAW.draw(root, arm, n).exact(),
        "v": dict.fromkeys("SRFCUA", version), "c": {"tokens": str(10 + n), "steps": "2"},
    }  # fmt: skip


def sealed(n, **more):
    metrics = {"reward/mean": n / 8, "reward/std": float("nan"), "policy/kl": float("inf")}
    metrics |= {f"rollout/stop/{i}": float(i) for i in range(15)}
    return {
        "metered": {"seconds": 0.1 * (n + 1)}, "metrics": metrics, "platform": {"os": "x"}, **more
    }  # fmt: skip


def append(lineage, parent=None, **how):
    """Append one synthetic round at the head."""
    branch = how.pop("branch", "main")
    given = {k: how.pop(k) for k in ("artifacts", "attempt", "step") if k in how}
    parent = parent or lineage.head(branch)
    document = exact(parent, **how)
    return lineage.append(parent, document, sealed(parent.n + 1), branch=branch, **given)
