import json


def test_a_lineage_goes_out_and_comes_back_under_another_name(call, tmp_path):
    file = str(tmp_path / "a.bundle")
    code, out, _ = call("export", "a", file)
    assert (code, out) == (0, f"{file}: 4 records, 0 pages, 20 values, 0 retired\n")
    assert call("export", "a", file)[0] == 2
    elsewhere = ("--uri", f"sqlite:///{tmp_path}/mlflow.db")
    code, out, _ = call("import", file, "--name", "b", *elsewhere)
    assert (code, out) == (0, "b: 4 records are new here, every digest holds\n")
    assert call("verify", "b", "--deep", *elsewhere)[0] == 0
    assert call("import", file, "--name", "b", *elsewhere)[1].startswith("b: 0 records are new")
    assert call("import", file + ".none")[0] == 2


def test_rounds_from_a_bundle_replay_and_their_source_runs_only_on_demand(ask, tmp_path):
    file = str(tmp_path / "a.bundle")
    assert ask("export", "a", file)[0] == 0
    where = ("--uri", f"sqlite:///{tmp_path}/mlflow.db")
    root = ("--store", str(tmp_path / "cas"))
    assert ask("import", file, "--name", "b", *where, *root)[0] == 0
    code, out, _ = ask("replay", "b", "--all", *where)
    assert (code, out.splitlines()[-1]) == (0, "b: 4 of 4 rounds came out the same")
    code, _, err = ask("replay", "b@1", "--recorded-code", *where)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("b came with a bundle, and --recorded-code would run the source in it")
    code, out, _ = ask(
        "replay", "b@1", "--stage", "F", "--recorded-code", "--trust", "--json", *where
    )
    assert (code, json.loads(out.splitlines()[-1])["same"]) == (0, True)
