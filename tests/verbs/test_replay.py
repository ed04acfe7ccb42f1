import json
import subprocess
import sys

import pytest


def test_a_round_replays_and_says_so(ask):
    code, out, _ = ask("replay", "a@1")
    assert code == 0
    verdicts = [line.split() for line in out.splitlines()[2:10]]
    assert [words[0] for words in verdicts] == list("ωSRFCUAr")
    assert all("same" in words for words in verdicts)
    assert out.splitlines()[-1] == "the same, bit for bit"


def test_one_stage_alone(ask):
    code, out, _ = ask("replay", "a@2", "--stage", "C", "--json")
    found = json.loads(out)
    assert code == 0
    assert [row["stage"] for row in found["stages"]] == ["C"]
    assert (found["same"], found["first"], found["changes"]) == (True, None, [])


def test_a_whole_lineage(ask):
    code, out, _ = ask("replay", "a", "--all")
    assert code == 0
    assert out.splitlines()[-1] == "a: 4 of 4 rounds came out the same"
    code, out, _ = ask("replay", "--all", "--stage", "F", "--json")
    assert [json.loads(line)["round"] for line in out.splitlines()] == [f"a@{n}" for n in range(4)]


def test_a_divergence_is_located_and_is_code_1(ask, monkeypatch):
    from harness.feedback import verified

    real = verified.Verified.__call__

    def bonus(self, X, Z, seed):
        F = real(self, X, Z, seed)
        return F.replace({}, rewards=F.rewards_B + 0.5)

    monkeypatch.setattr(verified.Verified, "__call__", bonus)
    code, out, _ = ask("replay", "a@1")
    assert code == 1
    assert "first to differ: F: episode 0: rewards was " in out
    code, out, _ = ask("replay", "a@1", "--json")
    found = json.loads(out)
    assert (code, found["first"]) == (1, "F")
    where = found["stages"][3]["divergence"]
    assert where["place"] == "episode 0"
    assert where["replayed"] == where["recorded"] + 0.5
    code, out, _ = ask("replay", "a", "--all", "--stage", "F")
    assert code == 1
    assert out.splitlines()[-1] == "a: 0 of 4 rounds came out the same"


def test_requests_that_cannot_be(ask):
    code, _, err = ask("replay", "a@1", "--stage", "X")
    assert (code, err) == (2, "--stage X is no stage; it is S, R, F, C, U or A\n")
    assert ask("replay", "a@-1")[0] == 2
    assert ask("replay", "a", "--all", "--recorded-code")[0] == 2


def test_the_archived_source_replays_in_a_process_of_its_own(ask):
    """Slow for what it is: one fresh process that imports everything from the archive."""
    code, out, _ = ask("replay", "a@1", "--stage", "F", "--recorded-code", "--json")
    found = json.loads(out.splitlines()[-1])
    assert code == 0
    assert [row["verdict"] for row in found["stages"]] == ["same"]
    assert found["changes"] == []


@pytest.mark.slow
def test_another_instruction_set_is_named(recorded_folder):
    """A setting of the library, from outside: other bits, and the platform says why."""
    import os
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    own = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": str(root)}
    uri = f"sqlite:///{recorded_folder}/mlflow.db"
    command = [sys.executable, "-P", "-m", "harness", "replay", "a@1", "--json", "--uri", uri]
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    assert any(text.startswith("platform cpu_capability was ") for text in found["changes"])
    assert any(text.startswith("flag environment.ATEN_CPU") for text in found["changes"])
    if done.returncode:
        assert found["first"] in ("R", "U")


def test_bytes_that_are_not_what_their_name_says_cannot_be_replayed(ask, recorded_folder, tmp_path):
    import shutil

    root = tmp_path / "moved"
    shutil.copytree(recorded_folder / "harness-cas", root)
    assert ask("replay", "a@1", "--stage", "F", "--store", str(root))[0] == 0
    record = json.loads(ask("show", "a@1", "--json")[1])["exact"]
    digits = record["Z"].removeprefix("sha256:")
    file = root / "trajectories" / digits[:2] / digits / "content.safetensors"
    file.chmod(0o644)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    code, out, _ = ask("replay", "a@1", "--stage", "F", "--store", str(root), "--json")
    (row,) = json.loads(out)["stages"]
    assert (code, row["verdict"]) == (1, "cannot")
    assert "restore it from another store" in row["reason"]
