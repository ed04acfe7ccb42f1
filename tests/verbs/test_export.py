def test_a_lineage_goes_out_and_comes_back_under_another_name(call, tmp_path):
    file = str(tmp_path / "a.bundle")
    code, out, _ = call("export", "a", file)
    assert (code, out) == (0, f"{file}: 4 records, 0 pages, 20 values\n")
    assert call("export", "a", file)[0] == 2
    elsewhere = ("--uri", f"sqlite:///{tmp_path}/mlflow.db")
    code, out, _ = call("import", file, "--name", "b", *elsewhere)
    assert (code, out) == (0, "b: 4 records are new here, every digest holds\n")
    assert call("verify", "b", "--deep", *elsewhere)[0] == 0
    assert call("import", file, "--name", "b", *elsewhere)[1].startswith("b: 0 records are new")
    assert call("import", file + ".none")[0] == 2
