import json
import re
import shutil

from harness.store import Store


def test_verify_is_green_and_prints_checkpoints_that_hold(call, tmp_path):
    code, out, _ = call("verify")
    assert code == 0
    assert out.splitlines()[0] == "a: 4 records, all right"
    lines = tmp_path / "published"
    lines.write_text(out.splitlines()[-1] + "\n")
    assert call("verify", "a", "--deep", "--against", str(lines))[0] == 0
    lines.write_text(lines.read_text().replace(" main 2 ", " main 1 "))
    code, out, _ = call("verify", "--against", str(lines))
    assert code == 1
    assert out.startswith("a@main@1: checkpoint: expected sha256:")
    assert call("verify", "--against", str(tmp_path / "none"))[0] == 2


def test_verify_looks_where_the_values_were_moved_and_says_what_is_missing(call, tmp_path):
    shutil.copytree("harness-cas", tmp_path / "moved")
    assert call("verify", "--store", str(tmp_path / "moved"))[0] == 0
    head = json.loads(call("show", "--json")[1])["exact"]
    Store(str(tmp_path / "moved")).delete("trajectories", head["Z"])
    code, out, _ = call("verify", "--store", str(tmp_path / "moved"), "--json")
    assert code == 1
    (problem,) = json.loads(out)["problems"]
    assert problem == {
        "record": "a@2", "field": "Z content", "expected": head["Z"],
        "actual": "nothing in the store",
    }  # fmt: skip


def test_a_folder_that_was_moved_verifies_replays_and_repair_tells_mlflow(
    here, recorded_folder, tmp_path
):
    """Twice: as a copy whose original is still there, and as one whose original is gone."""
    from harness.ledger.ledger import Ledger

    first, folder = tmp_path / "first", tmp_path / "moved"
    shutil.copytree(recorded_folder, first)
    said = here(first, "verify")
    assert (said.code, "note: a: its folder was moved" in said.out) == (0, True)
    # other tests may have added a branch
    (found,) = re.findall(r"^a: \d+ records, all right", said.out, re.MULTILINE)
    assert "MLflow's pages look in file://" in here(first, "repair").out
    first.rename(folder)
    (tmp_path / "elsewhere").mkdir()
    uri = f"sqlite:///{folder}/mlflow.db"
    for at, words in ((folder, ()), (tmp_path / "elsewhere", ("--uri", uri))):
        said = here(at, "verify", *words)
        assert said.code == 0
        assert f"MLflow's pages look in {first.as_uri()}" in said.out
        assert found in said.out
        assert here(at, "replay", "a", "--all", "--stage", "F", *words).code == 0
    assert here(folder, "repair").out.startswith("a: its folder was moved: MLflow's pages look in ")
    lineage = Ledger.open(uri, make=False).find("a")
    for entry in lineage.walk():
        run = lineage.client.get_run(entry.run)
        assert run.info.artifact_uri.startswith(folder.as_uri())
        assert "record.json" in {item.path for item in lineage.client.list_artifacts(entry.run)}
    experiment = lineage.client.get_experiment(lineage.experiment)
    assert experiment.artifact_location.startswith(folder.as_uri())
    assert "its folder was moved" not in here(folder, "verify").out
    assert here(folder, "repair").out == ""


def test_bytes_dropped_on_purpose_leave_the_chain_green_and_say_what_cannot_be_replayed(
    ask, recorded_folder, tmp_path
):
    root = tmp_path / "thin"
    shutil.copytree(recorded_folder / "harness-cas", root)
    record = json.loads(ask("show", "a@1", "--json")[1])["exact"]
    Store(str(root)).retire("trajectories", record["Z"], "asked for")
    code, out, _ = ask("verify", "a", "--store", str(root))
    assert code == 0
    assert "note: 1 values were dropped on purpose: they are known, not replayable" in out
    code, out, _ = ask("replay", "a@1", "--stage", "F", "--store", str(root), "--json")
    (row,) = json.loads(out)["stages"]
    assert (code, row["verdict"]) == (1, "cannot")
    assert row["reason"] == "the recorded Z of round 1 was dropped on purpose (asked for)"
