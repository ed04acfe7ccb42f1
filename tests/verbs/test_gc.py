"""`gc` drops what nothing names, what can be computed again, and what has to go."""

import json
import os
import shutil
import time

import pytest

from harness.forms import Document
from harness.store import NAME, Store

WORDS = ("+round=quickstart", "rollout.attempts=4", "update.gates.kl.budget=0.05",
         "lineage.name=a")  # fmt: skip
KEPT = (*WORDS, "memo.from_seconds=0")
ALONE = (*WORDS, "memo=off", "store.snapshot_every=1")


def identities(here, folder, *words):
    return [row["id"] for row in here(folder, "log", "a", "--json", *words).rows]


def collect(here, folder, *words):
    said = here(folder, "gc", *words, "--json")
    assert said.code == 0, said.err
    return said.rows[0]


def of(store, kind):
    return {"sha256:" + path.parent.name for path in (store / kind).glob(f"*/*/{NAME}")}


def age(store, kind, identifier, seconds):
    digits = identifier.removeprefix("sha256:")
    path = store / kind / digits[:2] / digits / NAME
    os.utime(path, (time.time() - seconds,) * 2)


def test_rounds_go_on_and_fork_where_states_were_dropped(here, project, empty_ledger, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    shutil.copy(empty_ledger, whole / "mlflow.db")
    fork = (*ALONE, "lineage.parent=a@1", "lineage.branch=side", "rounds=4")
    for folder, n in ((whole, 6), (project, 5)):
        assert here(folder, *ALONE, f"rounds={n}").code == 0
    assert here(whole, *fork).code == 0
    store = project / "harness-cas"
    before, records = of(store, "model"), here(project, "log", "a", "--json").rows
    # nothing was run again here yet
    row = collect(here, project, "--every", "3")
    assert (row["rows"], row["done"]) == ([], False)
    assert "cannot be computed again" in row["notes"][0]
    row = collect(here, project, "--every", "3", "--certify")
    assert {r["kind"] for r in row["rows"]} == {"model", "optimizer"}
    assert row["bytes"] > 0
    assert of(store, "model") == before
    done = collect(here, project, "--every", "3", "--yes")
    assert done["identifiers"] == row["identifiers"]
    kept = of(store, "model")
    assert kept == before - set(row["identifiers"])
    # the first, every third and the head
    states = [records[0]["state_in"], *(r["state_out"] for r in records)]
    assert kept == {states[i]["model"] for i in (0, 3, 5)}
    assert here(project, "verify", "a").code == 0
    assert here(project, *ALONE, "rounds=6").code == 0
    assert identities(here, project) == identities(here, whole)
    assert here(project, *fork).code == 0
    side = ("--branch", "side")
    assert identities(here, project, *side) == identities(here, whole, *side)
    assert here(project, "replay", "a@1", "--stage", "U").code == 0
    collect(here, project, "a", "--best", "--yes")
    assert here(project, "verify", "a").code == 0
    assert here(project, "replay", "a@side@3", "--stage", "U").code == 0


def test_what_nothing_names_goes_once_it_is_old(here, project):
    assert here(project, *KEPT, "rounds=2").code == 0
    root = project / "harness-cas"
    store = Store(str(root))
    old, young = (store.put(Document({"stray": n})) for n in (1, 2))
    for kind in os.listdir(root):
        for name in of(root, kind):
            age(root, kind, name, 0 if name == young else 7200)
    row = collect(here, project)
    assert row["identifiers"] == [old]
    assert row["rows"][0]["why"] == "nothing names it"
    assert collect(here, project, "--grace", "3h")["identifiers"] == []
    assert store.has("document", old)
    # whoever puts it again will name it
    store.put(Document({"stray": 1}))
    assert collect(here, project, "--yes")["identifiers"] == []
    age(root, "document", old, 7200)
    assert collect(here, project, "--yes")["identifiers"] == [old]
    assert not store.has("document", old)
    assert store.has("document", young)
    assert here(project, "verify", "--deep").code == 0
    # another experiment of the same database has the same store
    other = ("rounds=1", "seeds.root=7", "ledger.experiment=other")
    assert here(project, *KEPT, *other).code == 0
    for kind in os.listdir(root):
        for name in of(root, kind) - {young}:
            age(root, kind, name, 7200)
    assert collect(here, project, "--yes")["identifiers"] == []
    assert here(project, "verify", "--experiment", "other", "--deep").code == 0


def test_values_of_a_round_under_way_stay(here, project, ledger):
    assert here(project, *KEPT, "rounds=1").code == 0
    root = project / "harness-cas"
    name = Store(str(root)).put(Document({"written": "ahead"}))
    age(root, "document", name, 10)
    lineage = ledger.find("a")
    attempt = lineage.attempt(lineage.head())
    assert collect(here, project, "--grace", "9s")["identifiers"] == [name]
    assert collect(here, project, "--grace", "11s")["identifiers"] == []
    age(root, "document", name, -1)
    time.sleep(1.5)
    assert collect(here, project, "--grace", "0s")["identifiers"] == []
    attempt.end("failed")
    assert collect(here, project, "--grace", "0s")["identifiers"] == [name]


def test_dropped_trajectories_are_known_and_said(here, project, empty_ledger):
    assert here(project, *KEPT, "rounds=3").code == 0
    root = project / "harness-cas"
    before = {kind: of(root, kind) for kind in ("trajectories", "credit", "feedback", "model")}
    entries = len(list((root / "memo" / "R").glob("*/*.json")))
    words = ("a@1", "--drop", "trajectories", "--reason", "a name in it")
    listed = collect(here, project, *words)
    assert {r["kind"] for r in listed["rows"]} == {"trajectories", "credit", "feedback"}
    assert of(root, "trajectories") == before["trajectories"]
    done = collect(here, project, *words, "--yes")
    assert any("memo entries" in note for note in done["notes"])
    assert len(list((root / "memo" / "R").glob("*/*.json"))) == entries - 1
    gone = {kind: before[kind] - of(root, kind) for kind in before}
    assert [len(gone[kind]) for kind in before] == [1, 1, 1, 0]
    assert len(list((project / "mlartifacts").rglob("trajectories.html"))) == 2
    said = here(project, "verify", "a")
    assert said.code == 0, said.out
    assert "a@1: dropped on purpose: F, G, Z, trajectories.html (a name in it, 20" in said.out
    row = json.loads(here(project, "replay", "a@1", "--stage", "F", "--json").out)["stages"][0]
    assert row["verdict"] == "cannot"
    assert row["reason"].startswith("the recorded Z of round 1 was dropped on purpose (a name in")
    # the round itself can be run again
    assert here(project, "replay", "a@1").code == 0
    assert here(project, *KEPT, "rounds=4").code == 0
    # who is given the lineage knows it as well
    assert here(project, "export", "a", "it.zip").code == 0
    other = project / "other"
    other.mkdir()
    shutil.copy(empty_ledger, other / "mlflow.db")
    assert here(other, "import", "../it.zip").code == 0
    said = here(other, "verify", "a")
    assert said.code == 0, said.out
    assert "a@1: dropped on purpose: trajectories.html (a name in it, 20" in said.out
    # a second time finds nothing
    assert collect(here, project, *words)["bytes"] == 0


def test_dropped_states_are_known_and_said(here, project):
    words = (*ALONE, "update.gates.kl.budget=10")
    assert here(project, *words, "rounds=3").code == 0
    root = project / "harness-cas"
    assert len(of(root, "model")) == 4
    collect(here, project, "a@0", "a@1", "--drop", "states", "--yes")
    assert here(project, "verify", "a").code == 0
    assert len(of(root, "model")) == 2
    # while its Γ is there U gives it again
    assert here(project, "replay", "a@2", "--stage", "U").code == 0
    collect(here, project, "a@1", "--drop", "trajectories", "--yes")
    said = here(project, "replay", "a@2", "--stage", "U", "--json")
    assert said.code == 1
    assert "dropped on purpose (asked for" in json.loads(said.out)["stages"][0]["reason"]
    assert here(project, *words, "rounds=4").code == 0
    # the head would be computed from it
    store = Store(str(root))
    head = here(project, "log", "a", "--json").rows[-1]
    for kind, name in head["state_out"].items():
        store.delete(kind, name)
    said = here(project, "gc", "a", "--drop", "trajectories", "--yes")
    assert said.code == 2
    assert said.err.startswith("the state of a@main@3 is not stored and would be computed from")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--grace", "soon"], "--grace soon is no time; give seconds, or 30m, 1h, 2d"),
        (["--every", "-1"], "--every -1 keeps no rounds; it is 1 or more"),
        (["a", "--drop", "all"], "--drop all names nothing; it is trajectories or states"),
        (["--drop", "states"], "--drop wants to be told of what; give lineages or records"),
        (["a"], "what nothing names is of no lineage; give --every, --best or --drop"),
        (["a", "--drop", "states", "--best"], "--drop and a policy"),
        (["--certify"], "--certify is for states; give --every or --best too"),
        (["--reason", "x"], "--reason is of --drop; leave it out"),
        (["nobody", "--every", "2"], "there is no lineage 'nobody'"),
        (["a@9", "--drop", "states"], "the lineage 'a' has no round 9"),
    ],
)
def test_what_cannot_be_asked_is_refused(call, words, sentence):
    code, out, err = call("gc", *words)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert len(err.splitlines()) == 1
