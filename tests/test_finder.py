"""Results are found again, and no identity can tell."""

import dataclasses
import json
import re
import shutil

import pytest

from harness.memo import Folder, digest_of
from harness.store import Store

# gates reject some rounds, and states between snapshots are not stored
SMALL = ("+round=quickstart", "rollout.attempts=4", "store.snapshot_every=3",
         "update.gates.kl.budget=0.03")  # fmt: skip
OFF = (*SMALL, "memo=off")
# everything is kept, and nothing is computed again
ON = (*SMALL, "memo.from_seconds=0", "memo.check_every=1000")
ROUNDS = "rounds=5"
# every round moves the state
MOVING = "update.gates.kl.budget=100"


def log(here, folder, name, *words):
    return here(folder, "log", name, "--json", *words).rows


def ids(here, folder, name, *words):
    return [row["id"] for row in log(here, folder, name, *words)]


def record(here, folder, address):
    return json.loads(here(folder, "show", address, "--json").out)


def found(record):
    """The maps that the memo gave."""
    maps = record["sealed"]["memo"]["maps"]
    return "".join(name for name in "SRFCU" if maps.get(name, {}).get("found"))


@pytest.fixture(scope="session")
def thrice(here, empty_ledger, tmp_path_factory):
    """A folder with the same lineage three times: without a memo, kept, and found."""
    folder = tmp_path_factory.mktemp("thrice")
    shutil.copy(empty_ledger, folder / "mlflow.db")
    for name, words in (("off", OFF), ("first", ON), ("again", ON)):
        said = here(folder, *words, ROUNDS, f"lineage.name={name}")
        assert (said.code, said.err) == (0, "")
        (folder / name).write_text(said.out)
    return folder


@pytest.fixture
def copied(thrice, here, project):
    """A folder with a memo of its own of that lineage."""
    shutil.copytree(thrice / "harness-cas", project / "harness-cas")
    return project


def entries(folder, name):
    return sorted((folder / "harness-cas" / "memo" / name).glob("*/*.json"))


# ---- rounds


def test_no_identity_can_tell_whether_there_was_a_memo(thrice, here):
    off = ids(here, thrice, "off")
    assert len(off) == 5
    assert ids(here, thrice, "first") == off
    assert ids(here, thrice, "again") == off
    decisions = {row["decision"] for row in log(here, thrice, "off")}
    assert decisions == {"accept", "reject"}
    assert record(here, thrice, "off@2")["sealed"]["memo"] is None
    assert [found(record(here, thrice, f"first@{n}")) for n in range(5)] == [""] * 5
    assert [found(record(here, thrice, f"again@{n}")) for n in range(5)] == ["SRFCU"] * 5
    assert here(thrice, "verify", "again").code == 0


def test_the_cost_is_that_of_the_work_and_what_was_avoided_is_sealed(thrice, here):
    first, again = log(here, thrice, "first"), log(here, thrice, "again")
    assert [row["cost"] for row in first] == [row["cost"] for row in again]
    assert all(row["avoided"] == {} for row in first)
    avoided = {}
    for row in again:
        cost = row["cost"]
        assert row["avoided"]["tokens/sampled"] == cost["tokens/sampled"] > 0
        assert row["avoided"]["optimizer/steps"] == cost["optimizer/steps"]
        assert row["avoided"]["seconds/R"] > 0
        for name, value in row["avoided"].items():
            avoided[name] = avoided.get(name, 0) + value
    head = record(here, thrice, "again")
    # a snapshot was due after the third round, and the first lineage had stored it
    assert "repaid" not in head["sealed"]["memo"]
    assert head["sealed"]["avoided"] == pytest.approx(avoided)
    assert head["sealed"]["readings"]["seconds/R"] < avoided["seconds/R"]


def test_what_was_avoided_is_shown(thrice, here):
    lines = (thrice / "again").read_text().splitlines()
    rounds = [line for line in lines if re.match(r" +\d+  reward", line)]
    assert all(re.search(r"  S R F C U found: \d+\.\d\d s avoided  \w{12}$", r) for r in rounds)
    assert re.search(r"\navoided +[\d.]+ s, [\d,]+ sampled tokens and .* found in the memo\n",
                     "\n".join(lines))  # fmt: skip
    assert "avoided" not in (thrice / "first").read_text()
    table = here(thrice, "log", "again").out.splitlines()
    assert "avoided" in table[1]


def test_what_was_found_replays_without_the_memo(thrice, here):
    said = here(thrice, "replay", "--all", "again")
    assert said.code == 0
    assert "5 of 5 rounds came out the same" in said.out


@pytest.fixture
def moved(project, here):
    """A folder with three rounds that are kept, `first`, of which each moved the state."""
    assert here(project, *ON, MOVING, "rounds=3", "lineage.name=first").code == 0
    assert {row["decision"] for row in log(here, project, "first")} == {"accept"}
    return project


def test_a_lineage_that_was_found_goes_on_as_any_other(moved, here):
    # the state after round 1 is in no snapshot, and nobody asks for it
    assert here(moved, *ON, MOVING, "rounds=2", "lineage.name=a").code == 0
    said = here(moved, "verify", "a")
    assert said.code == 0
    assert "the state of the head of main is not stored: the next run computes it again" in said.out
    said = here(moved, *OFF, MOVING, "rounds=3", "lineage.name=a")
    assert (said.code, said.err) == (0, "")
    assert ids(here, moved, "a") == ids(here, moved, "first")


def test_what_was_avoided_and_is_needed_after_all_is_paid(moved, here):
    place = Folder(moved / "harness-cas" / "memo")
    third = next(entry for entry in place.all("U") if entry.of == "first@2")
    place.path("U", digest_of(third.key)).unlink()
    said = here(moved, *ON, MOVING, "rounds=3", "lineage.name=a")
    assert (said.code, said.err) == (0, "")
    assert ids(here, moved, "a") == ids(here, moved, "first")
    rounds = [record(here, moved, f"a@{n}") for n in range(3)]
    assert [found(r) for r in rounds] == ["SRFCU", "SRFCU", "SRFC"]
    # both updates had to be run for the state that the third begins with
    repaid = rounds[2]["sealed"]["memo"]["repaid"]
    for name, value in repaid.items():
        own = [r["sealed"]["memo"]["maps"]["U"]["avoided"][name] for r in rounds[:2]]
        assert value == pytest.approx(sum(own))
    assert repaid["optimizer/steps"] == 2
    assert rounds[1]["sealed"]["avoided"]["optimizer/steps"] == 2
    assert rounds[2]["sealed"]["avoided"]["optimizer/steps"] == 0
    assert here(moved, "verify", "a").code == 0


def test_arms_that_share_their_luck_share_a_rollout(project, here):
    words = ("-m", *ON, "rounds=1", "seeds=coupled", "credit=rloo,group")
    said = here(project, *words)
    assert said.code == 0
    names = re.findall(r"^lineage +(\S+),", said.out, re.M)
    one, other = (record(here, project, f"{name}@0") for name in names)
    # the law couples the seeds of task and rollout
    assert (found(one), found(other)) == ("", "SR")
    assert one["exact"]["Z"] == other["exact"]["Z"]
    assert one["exact"]["G"] != other["exact"]["G"]
    memo = other["sealed"]["memo"]["maps"]
    assert memo["R"]["of"] == f"{names[0]}@0"
    assert memo["C"]["reason"] == "new"


def test_a_resumed_round_finds_what_it_had_done(project, here, monkeypatch):
    from harness.update.deepspeed import DeepSpeed

    words = (*ON, MOVING, "rounds=4", "lineage.name=a")
    # in round 0 once more, to show that states may be recomputed
    call, left = DeepSpeed.__call__, [4]

    def failing(self, *inputs):
        left[0] -= 1
        if left[0] == 0:
            raise OSError("the power is gone")
        return call(self, *inputs)

    monkeypatch.setattr(DeepSpeed, "__call__", failing)
    assert here(project, *words).code == 2
    monkeypatch.undo()
    # the state that round 2 begins with is in no snapshot
    assert len(ids(here, project, "a")) == 2
    assert "attempt at round 2" in here(project, "log", "a").out
    said = here(project, *words)
    assert (said.code, said.err) == (0, "")
    assert [found(record(here, project, f"a@{n}")) for n in range(4)] == ["", "", "SRFC", ""]
    assert here(project, *OFF, MOVING, "rounds=4", "lineage.name=off").code == 0
    assert ids(here, project, "a") == ids(here, project, "off")


def test_a_fork_finds_what_it_shares(moved, here):
    fork = ("lineage.parent=first@1", "lineage.branch=side", "credit=rloo")
    said = here(moved, *ON, MOVING, "rounds=3", "lineage.name=first", *fork)
    assert (said.code, said.err) == (0, "")
    side, main = record(here, moved, "first@side@2"), record(here, moved, "first@2")
    assert found(side) == "SRF"
    assert side["exact"]["Z"] == main["exact"]["Z"]
    assert side["exact"]["G"] != main["exact"]["G"]


def test_a_what_if_is_not_worked_out_twice(moved, here, monkeypatch):
    from harness.update.deepspeed import DeepSpeed

    once = here(moved, "whatif", "first@2", "credit=rloo", "--json")
    assert once.code == 0

    def called(*inputs):
        raise AssertionError("the update runs")

    # neither for the round nor for the state that it begins with, which is in no snapshot
    monkeypatch.setattr(DeepSpeed, "__call__", called)
    again = here(moved, "whatif", "first@2", "credit=rloo", "--json")
    assert (again.code, again.out) == (0, once.out)
    with pytest.raises(AssertionError, match="the update runs"):
        here(moved, "whatif", "first@2", "credit=rloo", "memo=off")
    monkeypatch.undo()
    # appended, the state is made, and it is the one that was told
    branch = here(moved, "whatif", "first@2", "credit=rloo", "--branch", "other", "--json")
    assert branch.code == 0
    row = json.loads(branch.out.splitlines()[-1])
    assert row["whatif"]["proposed"] == json.loads(once.out)["whatif"]["proposed"]
    assert found(record(here, moved, "first@other@2")) == "CU"
    assert here(moved, "replay", "first@other@2").code == 0
    assert here(moved, "verify", "first").code == 0


def test_a_rollout_that_read_the_clock_is_not_kept(project, here, hanging):
    words = (*ON, "rounds=1", "rollout.timeout=0.1", "sampler.problems=2", "lineage.name=a")
    with hanging():
        assert here(project, *words).code == 0
    maps = record(here, project, "a@0")["sealed"]["memo"]["maps"]
    assert maps["R"]["reason"] == "open"
    assert not entries(project, "R")
    assert len(entries(project, "S")) == 1


def test_ranks_find_what_ranks_did(project, apart, here):
    # the first two rounds are found, and the third makes the state that it begins with
    for name, rounds in (("a", 2), ("b", 3)):
        words = (*ON, MOVING, f"rounds={rounds}", "ranks=2", f"lineage.name={name}")
        process = apart(project, *words)
        _, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
    assert ids(here, project, "b")[:2] == ids(here, project, "a")
    assert [found(record(here, project, f"b@{n}")) for n in range(3)] == ["SRFCU", "SRFCU", ""]
    assert here(project, "verify", "b").code == 0


# ---- what is wrong in the memo


def planted(folder, name):
    """Exchange the results of the first two entries of a map that differ; the first one's key."""
    place = Folder(folder / "harness-cas" / "memo")
    one, other, *_ = [e for e in place.all(name) if e.of.endswith(("@0", "@1"))]
    assert one.result["id"] != other.result["id"]
    for entry, result in ((one, other.result), (other, one.result)):
        place.write(dataclasses.replace(entry, result=result))


def test_a_result_that_comes_out_otherwise_is_reported_and_both_are_kept(copied, here, thrice):
    planted(copied, "C")
    said = here(copied, *ON, "rounds=2", "lineage.name=a", "memo.check_every=1")
    assert (said.code, said.err) == (0, "")
    assert said.out.count("is not deterministic") == 2
    assert "C of a@0 is not deterministic: first@" in said.out
    assert ids(here, copied, "a") == ids(here, thrice, "off")[:2]
    note = record(here, copied, "a@0")["sealed"]["memo"]["maps"]["C"]
    assert (note["found"], note["reason"]) == (False, "disputed")
    store = Store(str(copied / "harness-cas"))
    both = note["differs"]
    assert both["computed"]["id"] == record(here, copied, "a@0")["exact"]["G"]
    assert both["kept"] != both["computed"]
    assert all(store.check("credit", result["id"]) for result in both.values())
    # nobody takes such a result again
    assert here(copied, *ON, "rounds=1", "lineage.name=b").code == 0
    note = record(here, copied, "b@0")["sealed"]["memo"]["maps"]["C"]
    assert (note["found"], note["reason"]) == (False, "disputed")
    assert ids(here, copied, "b") == ids(here, thrice, "off")[:1]
    assert here(copied, "verify", "a").code == 0


def test_a_replay_does_not_believe_the_memo(copied, here, thrice):
    planted(copied, "C")
    assert here(copied, *ON, "rounds=1", "lineage.name=a").code == 0
    assert ids(here, copied, "a") != ids(here, thrice, "off")[:1]
    said = here(copied, "replay", "a@0", "--json")
    assert (said.code, json.loads(said.out)["first"]) == (1, "C")


def test_an_entry_that_is_damaged_or_without_its_value_is_none(copied, here, thrice):
    for path in entries(copied, "R")[:2]:
        path.write_bytes(path.read_bytes()[:-20])
    entries(copied, "C")[0].write_bytes(b"")
    store = Store(str(copied / "harness-cas"))
    gone = next(e for e in Folder(copied / "harness-cas" / "memo").all("F") if "@1" in e.of)
    store.delete("feedback", gone.result["id"])
    said = here(copied, *ON, ROUNDS, "lineage.name=a")
    assert (said.code, said.err) == (0, "")
    assert ids(here, copied, "a") == ids(here, thrice, "off")
    maps = [record(here, copied, f"a@{n}")["sealed"]["memo"]["maps"] for n in range(5)]
    assert [m["R"]["found"] for m in maps].count(False) == 2
    assert {m["F"].get("reason") for m in maps} == {None, "gone"}
    # and is kept anew
    assert here(copied, *ON, ROUNDS, "lineage.name=b").code == 0
    assert [found(record(here, copied, f"b@{n}")) for n in range(5)] == ["SRFCU"] * 5


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["memo.check_every=0"], "memo.check_every is 0; it is at least 1"),
        (["memo.from_seconds=-1"], "memo.from_seconds is -1.0; it is at least 0"),
        (["+memo.every=3"], "there is no key memo.every"),
    ],
)
def test_what_cannot_be_is_one_sentence(project, here, words, sentence):
    said = here(project, "+round=quickstart", *words)
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1


def reward(completion):
    return float(len(completion))


def test_a_users_function_runs_every_time(project, here):
    words = (*ON, "rounds=1", "feedback=function", f"feedback.path={__file__}:reward")
    for name in "ab":
        assert here(project, *words, f"lineage.name={name}").code == 0
    assert found(record(here, project, "b")) == "SRCU"
    note = record(here, project, "b")["sealed"]["memo"]["maps"]["F"]
    assert note["reason"] == "it calls a function of the user's, whose code is not looked at"
    assert not entries(project, "F")
