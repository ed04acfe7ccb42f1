import json


def test_show_gives_the_whole_record(call):
    code, out, _ = call("show", "a@1", "--json")
    record = json.loads(out)
    assert code == 0
    assert (record["n"], record["exact"]["d"]) == (1, "reject")
    code, out, _ = call("show", record["seal"][:20])
    assert code == 0
    assert record["id"] in out
    assert "policy/kl  inf" in out


def test_show_without_an_address_shows_the_head(call):
    assert json.loads(call("show", "--json")[1])["n"] == 2
    assert call("show", "a@9")[0] == 2
