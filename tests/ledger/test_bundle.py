"""Bundles: exported, taken in once, and refused where anything in them is not as it should be."""

import hashlib
import io
import json
import tarfile

import pytest
import rounds

from harness.identity import canonical
from harness.ledger import bundle
from harness.ledger.imports import admit
from harness.ledger.ledger import Ledger
from harness.ledger.record import Document, following
from harness.ledger.verify import verify
from harness.policies.tokenizer import identify
from harness.store import Store


@pytest.fixture(scope="module")
def world(fresh_database, tmp_path_factory):
    """A lineage with pages, a rejected round and a branch; its store; and its bundle."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "mlflow.db").write_bytes(fresh_database.read_bytes())
    ledger, store = Ledger.open(f"sqlite:///{folder}/mlflow.db"), Store(str(folder / "cas"))
    lineage = ledger.begin("a", rounds.begin(store=store))
    for n in range(3):
        rounds.append(lineage, store=store, accept=n != 1, artifacts={"p/page.html": b"<p>"})
    rounds.append(lineage, lineage.at(1), branch="side", salt="x", store=store)
    lost = lineage.attempt(lineage.head())
    lost.checkpoint("R", {"tokens": 5})
    lost.end("failed")
    bundle.export(lineage, store, folder / "a.bundle")
    return lineage, store, folder / "a.bundle"


@pytest.fixture
def there(ledger, tmp_path):
    return ledger, Store(str(tmp_path / "there"))


def take(there, file, name="", packages=(), limits=None):
    return admit(*there, file, name, packages, limits or bundle.Limits(), identify)


def members(file):
    with tarfile.open(file) as tar:
        return [(info, tar.extractfile(info).read()) for info in tar]


def bound(path, rows, lineage="a", manifest=None):
    """A bundle of these members, its manifest right unless one is given."""
    listed = [[i.name, len(d), "sha256:" + hashlib.sha256(d).hexdigest()] for i, d in rows]
    head = {"schema": bundle.SCHEMA, "lineage": lineage, "members": listed}
    data = manifest or canonical(head)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in [(tarfile.TarInfo(bundle.MANIFEST), data), *rows]:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_the_same_lineage_gives_the_same_bytes(world, tmp_path):
    lineage, store, file = world
    counts = bundle.export(lineage, store, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()
    assert counts == {
        "records": 5, "pages": 3, "values": len(members(file)) - 10, "retired": 0
    }  # fmt: skip
    with pytest.raises(ValueError, match="exists; give the name of a file"):
        bundle.export(lineage, store, tmp_path / "again")


def test_a_lineage_is_taken_in_whole_and_once(world, there, tmp_path):
    lineage, _, file = world
    taken, fresh = take(there, file)
    assert (taken.name, fresh) == ("a", 5)
    report = verify(taken, there[1], deep=True, against="\n".join(verify(lineage).checkpoints()))
    assert (report.problems, report.notes, report.records) == ([], [], 5)
    assert [e.seal for e in taken.walk("side")] == [e.seal for e in lineage.walk("side")]
    assert take(there, file) == (taken, 0)
    assert [line.name for line in there[0].lineages()] == ["a"]
    bundle.export(taken, there[1], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()
    assert take(there, file, name="b")[1] == 5
    for line in (lineage, taken, there[0].find("b")):
        assert [(a.n, a.state, a.stage, a.cost) for a in line.attempts()] == [
            (3, "failed", "R", {"tokens": 5})
        ]
        assert line.totals()["attempts"] == {"tokens": 5}


def test_what_was_dropped_goes_along_as_a_note_and_stays_out_of_no_store(world, there, tmp_path):
    lineage, store, file = world
    import shutil

    thin = Store(str(tmp_path / "thin"))
    shutil.copytree(store.root, thin.root)
    credit = rounds.contents(0)["G"].id
    thin.retire("credit", credit, "asked for by its author")
    assert bundle.export(lineage, thin, tmp_path / "thin.bundle")["retired"] == 1
    taken, _ = take(there, tmp_path / "thin.bundle")
    report = verify(taken, there[1])
    assert (report.problems, len(report.notes)) == ([], 1)
    assert "1 values were dropped on purpose" in report.notes[0]
    assert there[1].retired("credit", credit) == "asked for by its author"
    assert take((there[0], store), tmp_path / "thin.bundle", name="c")[1] == 5
    assert store.has("credit", credit)
    bad = (named(f"content/credit/{credit[7:]}.retired", b"x" * 20_000), "no note of why")
    for extra, sentence in (bad, (named("content/pickle/" + "0" * 64 + ".retired"), "no note")):
        with pytest.raises(ValueError, match=sentence):
            take(there, bound(tmp_path / "bad", [*members(file)[1:], extra]), name="d")


@pytest.mark.parametrize(
    "change",
    [{"cost": {"tokens": -5}}, {"cost": {"tokens": 1e999}}, {"cost": []}, {"n": -1}, {"n": "0"},
     {"state": "committed"}, {"branch": "../x"}, {"origin": "x"}, {"more": 1}, {"stage": "<b>"}],
)  # fmt: skip
def test_attempts_that_could_not_be_are_refused(world, there, tmp_path, change):
    rows = members(world[2])[1:]
    at = [info.name for info, _ in rows].index(bundle.ATTEMPTS)
    (attempt,) = json.loads(rows[at][1])
    rows[at] = (rows[at][0], json.dumps([attempt | change]).encode())
    with pytest.raises(ValueError, match=r"attempts\.json is refused"):
        take(there, bound(tmp_path / "bad", rows))
    nothing_came(there)


def test_what_was_appended_since_is_added_and_another_history_is_refused(world, there, tmp_path):
    _, _, file = world
    rows = members(file)[1:]
    first = [r for r in rows if r[0].name.startswith(("records/0", "records/1", "content"))]
    taken, fresh = take(there, bound(tmp_path / "short", first))
    assert fresh == 2
    assert take(there, file) == (taken, 3)
    assert verify(taken, there[1]).problems == []
    other = there[0].begin("other", rounds.begin())
    rounds.append(other, salt="y")
    with pytest.raises(ValueError, match="round 0 of 'main' is another here"):
        take(there, file, name="other")
    there[0].begin("third", rounds.begin(root="2"))
    with pytest.raises(ValueError, match="began otherwise; give another name"):
        take(there, file, name="third")


def named(name, data=b"x", **more):
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def nothing_came(there):
    assert there[0].lineages() == []
    assert not (there[1]._local).exists()


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (named("../evil"), "'../evil' is no name of a bundle's member"),
        (named("/etc/passwd"), "'/etc/passwd' is no name"),
        (named("records/0/pages/../../../evil"), "is no name of a bundle's member"),
        (named("records/0/pages//evil"), "is no name of a bundle's member"),
        (named("records/0/pages/a\\b"), "is no name of a bundle's member"),
        (named("records/0/pages/record.json"), "would stand in the place of a record"),
        (named("records/0/pages/extra"), "records/0/pages/extra is not what its record seals"),
        (named("content/pickle/" + "0" * 64 + ".safetensors"), "is no kind of value"),
        (named("content/model/" + "0" * 64 + ".safetensors", b"\x80\x04."), "is refused"),
        (named("records/0/pages/l", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
         "is not a plain file; links and devices are refused"),
        (named("records/0/pages/l", b"", type=tarfile.LNKTYPE, linkname="manifest.json"),
         "is not a plain file"),
        (named("records/0/pages/d", b"", type=tarfile.CHRTYPE), "is not a plain file"),
        (named("records/9/record.json", b"{}"), r"records/9/record\.json is refused"),
    ],
)  # fmt: skip
def test_hostile_members_are_refused_by_name(world, there, tmp_path, extra, sentence):
    file = bound(tmp_path / "bad", [*members(world[2])[1:], extra])
    with pytest.raises(ValueError, match=sentence):
        take(there, file)
    nothing_came(there)


def test_sizes_and_numbers_are_limited(world, there):
    for limits, sentence in (
        (bundle.Limits(member=100), "are allowed; raise the limit"),
        (bundle.Limits(total=5000), "exceeds 5000 bytes in all"),
        (bundle.Limits(members=3), "is one member more than 3"),
    ):
        with pytest.raises(ValueError, match=sentence):
            take(there, world[2], limits=limits)
    nothing_came(there)


def test_a_bundle_that_was_cut_anywhere_is_refused(world, there, tmp_path):
    data = world[2].read_bytes()
    for at in (0, 100, 512, 5000, len(data) // 2, len(data) * 3 // 4):
        (tmp_path / "cut").write_bytes(data[:at])
        with pytest.raises(ValueError, match=r"(cannot be read|cut short|is no manifest|altered)"):
            take(there, tmp_path / "cut")
    nothing_came(there)


def test_any_altered_member_is_named(world, there, tmp_path):
    rows = members(world[2])
    for k, (info, content) in enumerate(rows[1:], 1):
        bent = [*rows]
        bent[k] = (info, content[:-1] + bytes([content[-1] ^ 1]))
        file = bound(tmp_path / "bent", bent[1:], manifest=rows[0][1])
        with pytest.raises(ValueError, match=f"^{info.name} is not the bytes of the manifest"):
            take(there, file)
        # and where the manifest was altered with it
        with pytest.raises(ValueError, match=info.name.split("/pages")[0]):
            take(there, bound(tmp_path / "bent", bent[1:]))
    for k in (1, 3):
        with pytest.raises(
            ValueError, match=r"is refused|not in its place|is not what its record seals"
        ):
            take(there, bound(tmp_path / "lacks", [*rows[1:k], *rows[k + 1 :]]))
    nothing_came(there)


@pytest.mark.parametrize(
    ("config", "foreign"),
    [
        ({"feedback": {"_target_": "os.system"}}, "os.system"),
        ({"packages": ["evil"]}, "evil"),
        ({"feedback": {"_target_": "harness.feedback.function.Function", "path": "evil.m:f"}},
         "evil.m:f"),
    ],
)  # fmt: skip
def test_foreign_maps_are_refused_unless_their_package_is_named(there, tmp_path, config, foreign):
    genesis = Document(None, None, rounds.begin(), {"branch": "main"})

    class Parent:
        document, n = genesis, -1

    record = following(genesis, "main", rounds.exact(Parent), {"config": config}, {})
    rows = [named(f"records/{i}/record.json", d.encoded) for i, d in enumerate((genesis, record))]
    file = bound(tmp_path / "foreign", rows)
    with pytest.raises(ValueError, match=rf"records/1/record\.json is refused: .*{foreign!r}"):
        take(there, file)
    nothing_came(there)
    assert take(there, file, packages=(foreign.partition(".")[0],))[1] == 2


def test_a_store_that_fails_in_the_middle_shows_no_lineage(world, there, monkeypatch):
    from harness.ledger.lineage import Lineage

    kept, calls = Lineage.commit, []

    def fails(self, *given):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return kept(self, *given)

    monkeypatch.setattr(Lineage, "commit", fails)
    with pytest.raises(OSError, match="No space left"):
        take(there, world[2])
    assert there[0].lineages() == []
    monkeypatch.undo()
    assert take(there, world[2])[1] == 5
    assert json.loads(members(world[2])[0][1])["lineage"] == "a"
