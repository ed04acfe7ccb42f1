import json

import pytest


def test_requests_that_cannot_be(ask):
    code, _, err = ask("laws", "+round=quickstart", "--level", "2")
    assert code == 2
    assert err.startswith("--level 2.0 --episodes 32768 --draws 4096 cannot be: ")
    assert ask("laws", "credit=nonsense")[0] == 2


SMALL = ("--draws", "256", "--episodes", "1024")


@pytest.mark.parametrize("seeds", ["independent", "coupled", "antithetic"])
def test_the_laws_of_a_small_vault_hold(ask, seeds):
    words = ["environment.turns=2", f"seeds={seeds}", "sampler.problems=4"]
    code, out, _ = ask("laws", "+round=quickstart", *words, *SMALL, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["hold"]
    assert {check["family"] for check in found["checks"]} == {"seeds", "S", "R", "F"}
    assert found["notes"] == []


def test_a_fault_is_code_1_and_shown(ask, monkeypatch):
    from harness.seeds.independent import Independent

    real = Independent.draw
    monkeypatch.setattr(
        Independent, "draw", lambda self, root, arm, n: real(self, root, arm, n // 2)
    )
    code, out, _ = ask("laws", "+round=quickstart", "environment.turns=2", *SMALL)
    assert code == 1
    assert "rejected" in out
    assert out.splitlines()[-1].endswith("rejected")
