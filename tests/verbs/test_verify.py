import json
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
