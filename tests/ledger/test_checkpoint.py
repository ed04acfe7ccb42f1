import json

import pytest
import rounds

from harness.ledger.checkpoint import Checkpoint, holds, prove
from harness.ledger.record import Broken
from harness.ledger.verify import verify


@pytest.fixture(scope="module")
def lineage(fresh_database, tmp_path_factory):
    """Six rounds on main, and two on a branch that leaves it after round 2."""
    from harness.ledger.ledger import Ledger

    folder = tmp_path_factory.mktemp("proofs")
    (folder / "mlflow.db").write_bytes(fresh_database.read_bytes())
    lineage = Ledger.open(f"sqlite:///{folder}/mlflow.db").begin("a b", rounds.begin())
    for _ in range(6):
        rounds.append(lineage)
    at = lineage.at(2)
    rounds.append(lineage, at, branch="side", salt="x")
    rounds.append(lineage, branch="side", salt="x")
    return lineage


def published(lineage):
    return {line.split()[1]: line for line in verify(lineage).checkpoints()}


def test_a_line_is_read_back_with_and_without_a_root():
    seal, root = ("sha256:" + digit * 64 for digit in "12")
    for line in (f"checkpoint main 3 {seal} {root} a b", f"checkpoint main -1 {seal} a b"):
        assert str(Checkpoint.parse(line)) == line
        assert Checkpoint.parse(line).name == "a b"
    with pytest.raises(ValueError, match="is no checkpoint line"):
        Checkpoint.parse("checkpoint main x y")


def test_every_record_is_proven_under_the_root_of_its_branch(lineage):
    lines = published(lineage)
    for branch in ("main", "side"):
        for entry in lineage.walk(branch):
            proof = json.loads(json.dumps(prove(lineage, entry)))
            assert proof["checkpoint"] == lines[entry.branch]
            assert holds(proof)
            assert verify(lineage, against=json.dumps(proof)).problems == []
            assert not holds({**proof, "n": proof["n"] + 1})
            assert not holds({**proof, "seal": "sha256:" + "0" * 64})


def test_an_older_checkpoint_is_proven_to_be_within_a_newer_one(lineage):
    head, size = lineage.head(), 4
    older = Checkpoint.parse(published(lineage)["main"])
    proofs = [prove(lineage, head, older)]
    rounds.append(lineage)
    proofs += [
        prove(lineage, head, older),
        prove(lineage, lineage.head("side"), _at(lineage, size)),
    ]
    for proof in proofs:
        assert holds(proof)
        assert verify(lineage, against=json.dumps(proof)).problems == []
    assert proofs[1]["path"]
    other = Checkpoint(older.branch, older.n, older.seal, "sha256:" + "0" * 64, older.name)
    with pytest.raises(Broken, match="is another than that of sha256:000"):
        prove(lineage, head, other)
    with pytest.raises(ValueError, match="has no root"):
        prove(lineage, head, Checkpoint("main", 2, older.seal, None, older.name))
    with pytest.raises(Broken, match="is another"):
        prove(lineage, lineage.head("side"), older)


def _at(lineage, size):
    """The checkpoint of main when it held so many records."""
    from harness.ledger import merkle

    seals = [entry.seal for entry in lineage.walk()][:size]
    root = "sha256:" + merkle.root([merkle.leaf(seal) for seal in seals]).hex()
    return Checkpoint("main", size - 2, seals[-1], root, lineage.name)


def test_a_proof_that_does_not_hold_here_is_a_problem(lineage):
    proof = prove(lineage, lineage.at(1))
    bent = {**proof, "path": [*proof["path"][:-1], "0" * 64]}
    (found,) = verify(lineage, against=json.dumps(bent)).problems
    assert found.field == "proof of inclusion"
    moved = Checkpoint.parse(proof["checkpoint"])
    line = str(Checkpoint("main", moved.n, moved.seal, "sha256:" + "0" * 64, moved.name))
    assert [f.field for f in verify(lineage, against=line).problems] == ["checkpoint root"]
    for text in ("{}", '{"proof": 1', json.dumps({**proof, "path": ["00"]})):
        with pytest.raises(ValueError, match="is no proof; `prove` prints such lines"):
            verify(lineage, against=text)
    assert verify(lineage, against=json.dumps(proof).replace("a b", "c")).problems == []
