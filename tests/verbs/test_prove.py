import json


def test_a_proof_is_printed_and_checked(call, tmp_path):
    file = tmp_path / "proof"
    code, out, _ = call("prove", "a@1")
    assert code == 0
    file.write_text(out)
    assert json.loads(out)["proof"] == "inclusion"
    assert call("verify", "a", "--against", str(file))[0] == 0
    line = json.loads(out)["checkpoint"]
    code, out, _ = call("prove", "a", "--since", line)
    assert (code, json.loads(out)["proof"]) == (0, "consistency")
    file.write_text(out)
    assert call("verify", "a", "--against", str(file))[0] == 0
    assert call("prove", "a", "--since", "nonsense")[0] == 2
