def test_repair_lists_attempts_and_refuses_to_adopt_what_is_none(call):
    code, out, _ = call("repair")
    assert code == 0
    assert out.startswith("a: attempt ")
    assert out.endswith("at round 3: failed\n")
    run = out.split()[2]
    assert call("repair", "--adopt", run)[0] == 2
    assert call("repair", "--adopt", "none")[0] == 2
