"""`memo why` says what was found, and why not."""

import json
import shutil

import pytest

WORDS = ("+round=quickstart", "rollout.attempts=4", "update.gates.kl.budget=0.05", "rounds=1",
         "seeds=coupled", "memo.check_every=2")  # fmt: skip


@pytest.fixture(scope="session")
def kept(here, empty_ledger, tmp_path_factory):
    """A folder with a round, the same again three times, and one with another update."""
    folder = tmp_path_factory.mktemp("kept")
    shutil.copy(empty_ledger, folder / "mlflow.db")
    every = "memo.from_seconds=0"
    for name, words in {
        "a": [every], "b": [every], "c": [every], "d": [every, "update.lr=2e-3"],
        "slow": ["memo.from_seconds=1e6", "seeds.root=9"],
    }.items():  # fmt: skip
        assert here(folder, *WORDS, *words, f"lineage.name={name}").code == 0
    words = [w for w in WORDS if not w.startswith("memo")]
    assert here(folder, *words, "memo=off", "lineage.name=off").code == 0
    return folder


def why(here, folder, address):
    said = here(folder, "memo", "why", address, "--json")
    assert said.code == 0
    row = json.loads(said.out)
    return {found["map"]: found for found in row["maps"]}, row


def test_a_find_names_where_it_is_from(kept, here):
    maps, row = why(here, kept, "b@0")
    assert row["round"] == "b@0"
    assert row["memo"]
    assert list(maps) == list("SRFCU")
    assert all(m["found"] and m["of"] == "a@0" and m["kept"] for m in maps.values())
    assert maps["R"]["avoided"]["tokens/sampled"] > 0
    assert maps["R"]["reason"] == (
        "found: the same version, settings, code, inputs, seed and platform as a@0"
    )
    # the second find of each map
    maps, row = why(here, kept, "c@0")
    assert all(m["found"] and m["checked"] and not m["avoided"] for m in maps.values())
    assert maps["U"]["reason"].endswith("computed again to check it, and the same")


def test_what_is_new_is_compared_with_what_is_nearest(kept, here):
    maps, _ = why(here, kept, "d@0")
    # arms have the seeds of task and rollout in common
    assert [m["found"] for m in maps.values()] == [True, True, False, False, False]
    assert maps["F"]["nearest"] == {"of": "a@0", "differs": ["another seed"]}
    update = maps["U"]
    assert update["reason"] == "nothing was kept of this key"
    # its own result is kept now
    assert (update["kept"], update["of_now"], update["results"]) == (True, "d@0", 1)
    assert update["nearest"]["of"] == "a@0"
    assert "other settings of the map" in update["nearest"]["differs"]
    said = here(kept, "memo", "why", "d@0")
    assert "nearest is a@0, with another seed" in said.out


def test_what_is_not_kept_says_why(kept, here):
    maps, _ = why(here, kept, "slow@0")
    assert {m["reason"] for m in maps.values()} == {
        "it took less than memo.from_seconds, so nothing is kept of it"
    }
    maps, row = why(here, kept, "off@0")
    assert not row["memo"]
    assert {m["reason"] for m in maps.values()} == {"the memo was off"}
    # what it would have found
    assert all(m["kept"] and m["of_now"] == "a@0" for m in maps.values())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("what", "a@0"), "memo has no 'what'; say `memo why ID`"),
        (("why", "a@-1"), "a@-1 is the genesis record; give a round, 0 or later"),
        (("why", "nobody@0"), "there is no lineage 'nobody'"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(kept, here, words, sentence):
    said = here(kept, "memo", *words)
    assert said.code == 2
    assert said.err.startswith(sentence)
    assert said.err.count("\n") == 1
