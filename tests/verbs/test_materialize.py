"""Rounds of a model with an adapter, from the command line to folders that others load."""

import shutil
from itertools import pairwise

import pytest
import torch

from harness.ledger.ledger import Ledger
from harness.ledger.verify import verify
from harness.policies.lora import Lora
from harness.policies.model import Model, build_module, read_folder
from harness.policies.tiny import Tiny
from harness.store import Store

IDS = torch.tensor([[1, 5, 26, 27, 7]])
ADAPTED = ("+round=quickstart", "model=lora", "model.targets=[all-linear]", "rollout.attempts=4",
           "sampler.problems=2", "rollout/reference=initial",
           "update.gates.kl.budget=1.0", "update.objective.kl=k3", "update.objective.kl_coef=0.1",
           "lineage.name=a")  # fmt: skip


def entries(folder):
    return list(Ledger.open(f"sqlite:///{folder}/mlflow.db", make=False).find("a").walk())


def stored(folder):
    return Store(str(folder / "harness-cas"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, empty_ledger, here):
    """Three rounds of a model with an adapter, with a penalty on its distance from the base."""
    folder = tmp_path_factory.mktemp("adapted")
    shutil.copy(empty_ledger, folder / "mlflow.db")
    said = here(folder, *ADAPTED, "rounds=3", "store.snapshot_every=1")
    assert said.code == 0, said.err
    return folder


def test_the_base_is_stored_once(folder):
    store, chain = stored(folder), entries(folder)
    model = Lora(Tiny(), targets=("all-linear",)).initial()
    assert chain[0].document.resulting["model"] == model.id
    assert chain[-1].document.resulting["model"] != model.id
    whole = [e.document.resulting["model"] for e in chain]
    assert len(list((folder / "harness-cas" / "model").glob("*/*"))) == len({*whole}) + 1
    for identifier in whole:
        assert store.get(Model, identifier, check=True).base.id == model.base.id


def test_the_reference_is_the_base(folder):
    store, chain = stored(folder), entries(folder)
    base = Lora(Tiny(), targets=("all-linear",)).initial()
    first, *later = (store.get("trajectories", e.document.exact["Z"]) for e in chain[1:])
    gap = lambda Z: abs(Z.arrays["ref_logprobs"] - Z.logprobs_T).max()  # noqa: E731
    assert gap(first) < 2e-6
    assert all(gap(Z) > 1e-4 for Z in later)
    assert all(Z.meta["reference"]["id"] == base.id for Z in (first, *later))


def test_a_lineage_that_stopped_is_that_of_one_that_never_did(folder, here, project):
    for n in (1, 2, 3):
        assert here(project, *ADAPTED, f"rounds={n}").code == 0
    assert [e.identity for e in entries(project)] == [e.identity for e in entries(folder)]


def test_states_between_snapshots_are_computed_again(folder, here, project):
    words = (*ADAPTED, "store.snapshot_every=3")
    assert here(project, *words, "rounds=2").code == 0
    chain, store = entries(project), stored(project)
    ids = chain[1].document.resulting
    assert not store.has("model", ids["model"])
    assert here(project, "materialize", "a@0", "out").code == 0
    for kind in ("model", "optimizer"):
        store.delete(kind, chain[2].document.resulting[kind])
    assert here(project, *words, "rounds=3").code == 0
    assert [e.identity for e in entries(project)] == [e.identity for e in entries(folder)]


def test_a_rejected_proposal_leaves_the_adapter_as_it_was(here, project):
    words = (*ADAPTED, "+update/gate@update.gates.never=always", "rounds=3")
    said = here(project, *words, "update.gates.never.decision=reject")
    assert said.code == 0, said.err
    chain = entries(project)
    assert {e.document.exact["d"] for e in chain[1:]} == {"reject"}
    assert len({e.document.resulting["model"] for e in chain}) == 1
    for before, after in pairwise(chain[1:]):
        assert after.document.exact["proposed"] != before.document.exact["proposed"]
    assert here(project, "replay", "a@2").code == 0


def test_a_record_is_replayed(folder, here):
    said = here(folder, "replay", "a@1")
    assert said.code == 0, said.out


def test_a_state_is_written_merged_for_transformers(folder, here, tmp_path):
    from transformers import AutoModelForCausalLM

    said = here(folder, "materialize", "a@2", str(tmp_path / "m"))
    assert said.code == 0, said.err
    model = stored(folder).get(Model, entries(folder)[-1].document.resulting["model"])
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m").requires_grad_(False)
    own = build_module(model)(IDS).logits
    assert torch.allclose(theirs(IDS).logits, own, atol=2e-6)
    assert not torch.allclose(own, build_module(model.base)(IDS).logits, atol=1e-4)
    assert read_folder(tmp_path / "m").base is None


def test_a_state_is_written_as_an_adapter_for_peft(folder, here, tmp_path):
    import peft
    from transformers import AutoModelForCausalLM

    assert here(folder, "materialize", "a@2", str(tmp_path / "p"), "--adapter").code == 0
    assert here(folder, "materialize", "a@-1", str(tmp_path / "base")).code == 0
    model = stored(folder).get(Model, entries(folder)[-1].document.resulting["model"])
    # the adapter is zero in the first state, so that it is the base, merged
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "p")
    assert torch.equal(theirs(IDS).logits, build_module(model)(IDS).logits)
    said = here(folder, "materialize", "a@2", str(tmp_path / "p"))
    assert (said.code, "is not empty; give a folder" in said.err) == (2, True)


def test_a_bundle_brings_the_base(folder, here, tmp_path):
    file, uri = tmp_path / "a.bundle", f"sqlite:///{tmp_path}/mlflow.db"
    assert here(folder, "export", "a", str(file)).code == 0
    said = here(tmp_path, "import", str(file), "--name", "b", "--uri", uri)
    assert said.code == 0, said.err
    lineage = Ledger.open(uri, make=False).find("b")
    store = Store(str(next(tmp_path.rglob("harness-cas"))))
    assert not verify(lineage, store, deep=True).problems
    head = lineage.head().document.resulting["model"]
    base = store.get(Model, head, check=True).base
    # and the loss of its bytes is seen
    store.delete("model", base.id)
    (problem,) = verify(lineage, store).problems
    assert (problem.field, problem.expected) == ("state.model's base content", base.id)


def test_what_has_no_adapter_is_not_written_as_one(ask, tmp_path):
    code, _, err = ask("materialize", "a@0", str(tmp_path / "x"), "--adapter")
    assert (code, err) == (2, "this model has no adapter; leave out --adapter\n")
