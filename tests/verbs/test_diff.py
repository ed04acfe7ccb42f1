import json


def test_a_round_does_not_differ_from_itself(ask):
    code, out, _ = ask("diff", "a@1", "a@1", "--json")
    found = json.loads(out)
    assert code == 0
    assert found.pop("same")
    assert not any(found.values())


def test_two_rounds_differ_in_seeds_states_and_results_alone(ask):
    code, out, _ = ask("diff", "a@1", "a@2", "--json")
    found = json.loads(out)
    assert code == 1
    assert set(found["seeds"]) == {"task", "roll", "feed", "credit", "update"}
    assert {"X", "Z", "F", "Γ"} <= set(found["results"])
    assert not any(found[k] for k in ("config", "versions", "source", "platform", "flags"))
    code, out, _ = ask("diff", "a@1", "a@2")
    assert code == 1
    assert out.splitlines()[-1].startswith("equal: config, versions, ")


def test_an_exchanged_round_differs_in_its_settings(ask):
    if ask("log", "a", "--branch", "settings")[0]:
        assert ask("whatif", "a@3", "update.lr=1e-4", "--branch", "settings")[0] == 0
    code, out, _ = ask("diff", "a@3", "a@settings@3", "--json")
    found = json.loads(out)
    assert code == 1
    assert found["config"]["update.lr"] == [1e-3, 1e-4]
    assert set(found["versions"]) == {"U.settings"}
    assert set(found["seeds"]) == set()
    assert "X" not in found["results"]


def test_a_lineage_does_not_differ_from_itself(ask):
    code, out, _ = ask("diff", "a", "a", "--json")
    found = json.loads(out)
    assert (code, found["same"], found["first"]) == (0, True, None)
    assert ask("diff", "a", "a@-1")[0] == 2


def test_archived_sources_are_compared_by_line(tmp_path):
    import numpy as np

    from harness.exactness.difference import of_sources
    from harness.fingerprint import Source
    from harness.store import Store

    store = Store(str(tmp_path))
    text = {"a.py": "x = 1\ny = 2\n", "b.py": "z = 3\n"}
    ids = []
    for each in (text, {**text, "a.py": "x = 1\ny = 4\n"}):
        files = {n: np.frombuffer(t.encode(), np.uint8).copy() for n, t in each.items()}
        ids.append(store.put(Source({}, files)))
    found = of_sources(*ids, (store, store))
    assert list(found) == ["a.py"]
    assert found["a.py"].splitlines()[-2:] == ["-y = 2", "+y = 4"]
    assert of_sources(ids[0], ids[0], (store, store)) == {}
    assert of_sources(ids[0], "sha256:" + "0" * 64, (store, store)) == {}
