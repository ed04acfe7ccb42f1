"""Each kind of tampering is found, and named right."""

import shutil
import sqlite3

import pytest
import rounds

from harness.ledger import files, merkle
from harness.ledger.ledger import Ledger
from harness.ledger.verify import verify
from harness.store import Store


@pytest.fixture(scope="module")
def template(fresh_database, tmp_path_factory):
    """A folder with a lineage of four rounds, one of them rejected."""
    folder = tmp_path_factory.mktemp("template")
    shutil.copy(fresh_database, folder / "mlflow.db")
    ledger, store = Ledger.open(f"sqlite:///{folder}/mlflow.db"), Store(str(folder / "cas"))
    lineage = ledger.begin("a", rounds.begin(store=store))
    for n in range(4):
        pages = {"page.html": b"<p>hello"}
        rounds.append(lineage, store=store, accept=n != 2, artifacts=pages)
    return folder


@pytest.fixture
def world(tmp_path, template):
    shutil.copytree(template, tmp_path / "w")
    with sqlite3.connect(tmp_path / "w" / "mlflow.db") as connection:
        for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
            connection.execute(
                f"update {table} set {column} = replace({column}, ?, ?)",
                (str(template), str(tmp_path / "w")),
            )
    connection.close()
    return World(tmp_path / "w")


class World:
    def __init__(self, folder):
        self.database = folder / "mlflow.db"
        self.ledger = Ledger.open(f"sqlite:///{self.database}")
        self.store = Store(str(folder / "cas"))
        self.lineage = self.ledger.find("a")
        self.entries = list(self.lineage.walk())
        self.client = self.lineage.client

    def run(self, n):
        return self.client.get_run(self.entries[n + 1].run)

    def sql(self, statement, *values):
        with sqlite3.connect(self.database) as connection:
            assert connection.execute(statement, values).rowcount > 0
        connection.close()

    def rewrite(self, n, old, new):
        uri = self.run(n).info.artifact_uri
        data = files.read(uri, "record.json")
        assert old in data
        files.write(uri, {"record.json": data.replace(old, new)})

    def report(self, **how):
        return verify(self.lineage, self.store, **how)

    def fields(self, **how):
        return {(f.record, f.field) for f in self.report(**how).problems}


def test_an_honest_lineage_is_green(world):
    side = rounds.append(
        world.lineage, world.entries[2], branch="side", salt="x", store=world.store
    )  # fmt: skip
    attempt = world.lineage.attempt(world.entries[-1])
    attempt.end("failed")
    report = world.report(deep=True)
    assert (report.problems, report.notes, report.records) == ([], [], 6)
    main, own = (merkle.root_of(report.trees[branch]) for branch in ("main", "side"))
    assert report.checkpoints() == [
        f"checkpoint main 3 {world.entries[-1].seal} {main} a",
        f"checkpoint side 2 {side.seal} {own} a",
    ]
    assert world.report(against="\n".join(report.checkpoints())).problems == []


# one row a kind: what is done, and the record and field that must be named
TAMPERINGS = {
    "record: a decision": (
        lambda w: w.rewrite(2, b'"d":"reject"', b'"d":"accept"'),
        {("a@2", "identity"), ("a@2", "seal"), ("a@2", "resulting"), ("a@2", "params.d")},
    ),
    "record: a metered reading": (
        lambda w: w.rewrite(1, b'"seconds":0.2}', b'"seconds":0.1}'), {("a@1", "seal")},
    ),
    "record: a cost": (
        lambda w: w.rewrite(1, b'"tokens":"11"', b'"tokens":"10"'),
        {("a@1", "identity"), ("a@1", "totals"), ("a@1", "metrics.cost/tokens")},
    ),
    "record: a seed": (
        lambda w: w.rewrite(3, b'"task":"', b'"task":"0'),
        {("a@3", "identity"), ("a@3", "omega"), ("a@3", "params.omega.task")},
    ),
    "record: its form": (
        lambda w: w.rewrite(3, b',"d":"accept"', b', "d":"accept"'), {("a@3", "record.json")},
    ),
    "record: a field left out": (
        lambda w: w.rewrite(3, b'"starting":', b'"startinh":'), {("a@3", "record.json")},
    ),
    "record: a field of another type": (
        lambda w: w.rewrite(3, b'"n":3', b'"n":[]'), {("a@3", "record.json")},
    ),
    "record: cut": (
        lambda w: files.write(w.run(3).info.artifact_uri, {"record.json": b'{"exact":'}),
        {("a@3", "record.json")},
    ),
    "record: gone": (
        lambda w: (files.local(w.run(0).info.artifact_uri) / "record.json").unlink(),
        {("a@0", "record.json")},
    ),
    "record: another's": (
        lambda w: files.write(
            w.run(3).info.artifact_uri,
            {"record.json": files.read(w.run(1).info.artifact_uri, "record.json")},
        ),
        {("a@3", "n"), ("a@3", "parent"), ("a@3", "identity"), ("a@3", "seal")},
    ),
    "records: exchanged": (
        lambda w: [
            files.write(w.run(i).info.artifact_uri, {"record.json": data})
            for i, data in zip(
                (1, 2),
                [files.read(w.run(j).info.artifact_uri, "record.json") for j in (2, 1)],
                strict=True,
            )
        ],
        {("a@1", "n"), ("a@2", "n"), ("a@1", "seal"), ("a@2", "seal")},
    ),
    "genesis: the root of the seeds": (
        lambda w: w.rewrite(-1, b'"root":"1"', b'"root":"2"'),
        {("a@-1", "identity"), ("a@-1", "seal"), ("a@0", "parent"), ("a@3", "omega")},
    ),
    "param: changed": (
        lambda w: w.sql(
            "update params set value='accept' where key='d' and run_uuid=?", w.entries[3].run
        ),
        {("a@2", "params.d")},
    ),
    "param: removed": (
        lambda w: w.sql("delete from params where key='X' and run_uuid=?", w.entries[2].run),
        {("a@1", "params.X")},
    ),
    "param: added": (
        lambda w: w.client.log_param(w.entries[2].run, "best", "yes"), {("a@1", "params.best")},
    ),
    "param: the seal": (
        lambda w: w.sql(
            "update params set value='sha256:0' where key='ledger.seal' and run_uuid=?",
            w.entries[2].run,
        ),
        {("a@1", "params.ledger.seal")},
    ),
    "metric: overwritten": (
        lambda w: w.client.log_metric(w.entries[2].run, "reward/mean", 1.0, step=1),
        {("a@1", "metrics.reward/mean")},
    ),
    "metric: added": (
        lambda w: w.client.log_metric(w.entries[2].run, "reward/best", 1.0),
        {("a@1", "metrics.reward/best")},
    ),
    "metric: removed": (
        lambda w: w.sql(
            "delete from latest_metrics where key='cost/tokens' and run_uuid=?", w.entries[2].run
        ),
        {("a@1", "metrics.cost/tokens")},
    ),
    "curve: a point moved": (
        lambda w: w.client.log_metric(w.lineage.run, "reward/mean", 1.0, step=2),
        {("a@2", "curve reward/mean")},
    ),
    "curve: a point after the head": (
        lambda w: w.client.log_metric(w.lineage.run, "reward/mean", 1.0, step=4),
        {("a@4", "curve reward/mean")},
    ),
    "pointer: to another run": (
        lambda w: w.sql(
            "update params set value=? where key='ledger.next.main' and run_uuid=?",
            w.entries[4].pointer, w.entries[2].run,
        ),
        {("a@2", "n"), ("a@2", "parent"), ("a@2", f"run {'{2}'}")},
    ),
    "pointer: back": (
        lambda w: w.client.log_param(w.entries[4].run, "ledger.next.main", w.entries[2].pointer),
        {("a@4", "ledger.next.main")},
    ),
    "pointer: to nothing": (
        lambda w: w.client.log_param(w.entries[4].run, "ledger.next.main", "0" * 32 + ":sha256:0"),
        {("a@4", "run")},
    ),
    "pointer: another seal": (
        lambda w: w.sql(
            "update params set value=? where key='ledger.next.main' and run_uuid=?",
            f"{w.entries[2].run}:sha256:0", w.entries[1].run,
        ),
        {("a@1", "seal"), ("a@1", "params.ledger.seal")},
    ),
    "pointer: of a branch that is none": (
        lambda w: w.client.log_param(w.entries[4].run, "ledger.next.x", w.entries[2].pointer),
        {("a@3", "ledger.next.x"), ("a@x@4", "ledger.next.x")},
    ),
    "pointer: removed, so the tail is cut": (
        lambda w: w.sql(
            "delete from params where key='ledger.next.main' and run_uuid=?", w.entries[3].run
        ),
        {("a@3", f"run {'{3}'}"), ("a@3", "curve reward/mean")},
    ),
    "fork: to nowhere": (
        lambda w: w.client.log_param(w.lineage.run, "ledger.fork.x", "main 1 none:sha256:0"),
        {("a@main@1", "ledger.fork.x")},
    ),
    "run: deleted": (lambda w: w.client.delete_run(w.entries[2].run), {("a@1", "run")}),
    "run: destroyed": (
        lambda w: w.sql("delete from runs where run_uuid=?", w.entries[4].run), {("a@3", "run")},
    ),
    "run: an orphan called a record": (
        lambda w: w.client.set_tag(
            w.lineage.attempt(w.entries[4]).run, "ledger.state", "committed"
        ),
        {("a@?", "run ")},
    ),
    "page: changed": (
        lambda w: files.write(w.run(2).info.artifact_uri, {"page.html": b"<p>bye"}),
        {("a@2", "artifacts.page.html")},
    ),
    "page: gone": (
        lambda w: (files.local(w.run(2).info.artifact_uri) / "page.html").unlink(),
        {("a@2", "artifacts.page.html")},
    ),
    "content: trajectories gone": (
        lambda w: w.store.delete("trajectories", rounds.contents(1)["Z"].id),
        {("a@1", "Z content")},
    ),
    "content: credit changed": (
        lambda w: swap(w.store, rounds.contents(1)["G"], rounds.contents(2)["G"]),
        {("a@1", "G content")},
    ),
    "content: the state to go on from gone": (
        lambda w: w.store.delete("model", w.entries[-1].document.resulting["model"]),
        {("head of main", "resulting.model")},
    ),
}  # fmt: skip


def swap(store, value, other):
    from harness.store import NAME, _folder

    paths = [store._local / _folder(v.kind, v.id) / NAME for v in (value, other)]
    paths[0].chmod(0o644)
    paths[0].write_bytes(paths[1].read_bytes())


@pytest.mark.parametrize("kind", TAMPERINGS)
def test_tampering_is_found_and_named(world, kind):
    tamper, named = TAMPERINGS[kind]
    tamper(world)
    found = world.fields()
    for record, field in named:
        field = field.format(*(e.run for e in world.entries[1:]))
        assert any(r == record and f.startswith(field) for r, f in found), (field, found)


def test_a_changed_model_is_found_where_all_is_hashed(world):
    other = rounds.state(9)[0]
    world.store.put(other)
    swap(world.store, rounds.state(1)[0], other)
    assert world.report().problems == []
    assert world.fields(deep=True) == {("a@0", "resulting.model content")}


def test_tags_and_statuses_are_no_truth(world):
    run = world.entries[2].run
    world.client.set_tag(run, "mlflow.note.content", "a much better round")
    world.client.set_tag(run, "ledger.branch", "elsewhere")
    world.client.set_tag(world.lineage.run, "ledger.head.main", run)
    assert world.report().problems == []
    assert world.report().notes == ["a: the head hint of main is stale; repair moves it"]
    world.client.delete_tag(run, "mlflow.parentRunId")
    world.client.update_run(run, "RUNNING")
    assert world.report().problems == []
    assert "a@1: committed, but shown as RUNNING; repair finishes it" in world.report().notes


def test_what_was_retired_is_a_note(world):
    world.store.retire("trajectories", rounds.contents(1)["Z"].id, "asked for")
    report = world.report()
    assert report.problems == []
    assert report.notes == ["1 values were dropped on purpose: they are known, not replayable"]


def test_a_rewritten_history_is_found_by_published_lines(world):
    lines = "\n".join(world.report().checkpoints())
    other = world.ledger.begin("b", rounds.begin(store=world.store))
    for _ in range(4):
        rounds.append(other, store=world.store)
    assert verify(other, world.store).problems == []
    lines = "\n".join(line[: -len(" a")] + " b" for line in lines.splitlines())
    found = verify(other, world.store, against=lines).problems
    assert [(f.record, f.field) for f in found] == [("b@main@3", "checkpoint")]
    with pytest.raises(ValueError, match="is no checkpoint line"):
        verify(other, world.store, against="hello")


def test_seeds_of_a_law_with_settings_are_drawn_again(ledger):
    from harness.identity import settings
    from harness.ledger.checks import law_of
    from harness.seeds.antithetic import Antithetic
    from harness.seeds.recorded import Recorded

    for law in (Antithetic(), Recorded((("0" * 32,) * 5,))):
        assert law_of(settings(law)) == law
    assert law_of({"map": "os.path@1", "settings": {}}) is None
    assert law_of({"map": "seeds.independent@0", "settings": {}}) is None
