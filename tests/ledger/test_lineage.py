import pytest
import rounds

from harness.ledger.entry import Conflict
from harness.ledger.record import Broken


@pytest.fixture
def lineage(ledger):
    return ledger.begin("a", rounds.begin())


def test_the_head_follows_what_is_appended_and_the_walk_begins_at_the_genesis(lineage):
    appended = [rounds.append(lineage, accept=n != 1) for n in range(3)]
    assert [e.identity for e in lineage.walk()][1:] == [e.identity for e in appended]
    assert lineage.head().identity == appended[-1].identity
    assert [e.n for e in lineage.walk()] == [-1, 0, 1, 2]
    assert lineage.totals() == {
        "committed": {"tokens": 33.0, "steps": 6.0, "seconds": pytest.approx(0.6)},
        "avoided": {}, "attempts": {},
    }  # fmt: skip


def test_the_same_rounds_have_the_same_identities_in_another_lineage(ledger, lineage):
    other = ledger.begin("b", rounds.begin())
    one = [rounds.append(lineage).identity for _ in range(2)]
    two = [rounds.append(other).identity for _ in range(2)]
    assert one == two


def test_a_beaten_writer_is_told_and_billed(lineage):
    parent = lineage.head()
    attempt = lineage.attempt(parent)
    winner = rounds.append(lineage, parent)
    with pytest.raises(Conflict, match="committed by another process") as caught, attempt:
        rounds.append(lineage, parent, attempt=attempt, salt="other")
    assert caught.value.winner.identity == winner.identity
    (lost,) = lineage.attempts()
    assert (lost.state, lost.status, lost.cost["tokens"]) == ("beaten", "KILLED", 10.0)
    assert lineage.totals()["attempts"]["steps"] == 2.0


def test_a_beaten_writer_of_the_same_round_goes_on_from_the_winner(lineage):
    parent = lineage.head()
    winner = rounds.append(lineage, parent)
    assert rounds.append(lineage, parent) == winner
    assert [a.state for a in lineage.attempts()] == ["twin"]
    assert lineage.head().identity == winner.identity


def test_a_tampered_hint_misleads_nobody(lineage):
    for _ in range(2):
        rounds.append(lineage)
    head = lineage.head()
    orphan = lineage.attempt(head).run
    for hint in ("", "nonsense", orphan, lineage.run):
        lineage.client.set_tag(lineage.run, "ledger.head.main", hint)
        assert lineage.head() == head


def test_a_branch_leaves_another_where_it_was_forked(lineage):
    for _ in range(3):
        rounds.append(lineage)
    at = list(lineage.walk())[2]
    own = rounds.append(lineage, at, branch="side", salt="x")
    rounds.append(lineage, branch="side")
    deeper = rounds.append(lineage, own, branch="deeper", salt="y")
    assert [e.branch for e in lineage.walk("deeper")] == ["main"] * 3 + ["side", "deeper"]
    assert lineage.head("deeper").identity == deeper.identity
    assert lineage.head("side").n == 3
    assert lineage.head().n == 2
    with pytest.raises(ValueError, match="'side' already begins after round 1"):
        rounds.append(lineage, lineage.head(), branch="side")
    with pytest.raises(ValueError, match="has no branch 'none'"):
        list(lineage.walk("none"))
    with pytest.raises(ValueError, match="branch name '7'"):
        lineage.attempt(at, "7")


def test_values_that_are_too_long_are_refused_not_cut(lineage):
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match="exceed"):
        lineage.client.set_tag(lineage.run, "x", "y" * 9000)
    entry = lineage.append(
        lineage.head(), rounds.exact(lineage.head()), {"params": {"x": "y" * 9000}}
    )
    assert lineage.client.get_run(entry.run).data.params["x"].startswith("sha256:")


def test_a_changed_record_stops_the_head(lineage):
    from harness.ledger import files

    rounds.append(lineage)
    uri = lineage.client.get_run(lineage.head().run).info.artifact_uri
    files.write(uri, {"record.json": files.read(uri, "record.json").replace(b'"d"', b'"e"')})
    with pytest.raises(Broken, match="its parent points to"):
        lineage.head()


def test_names_that_mlflow_refuses_are_spelt_so_that_it_takes_them(lineage):
    entry = lineage.append(
        lineage.head(), rounds.exact(lineage.head()),
        {"metrics": {"a@b//c": 1.0}, "params": {"x[0]": "1"}},
    )  # fmt: skip
    data = lineage.client.get_run(entry.run).data
    assert data.metrics["a_b/_/c"] == 1.0
    assert data.params["x_0_"] == "1"
    with pytest.raises(ValueError, match="are one name in MLflow"):
        lineage.append(entry, rounds.exact(entry), {"metrics": {"a@": 1.0, "a!": 2.0}})
