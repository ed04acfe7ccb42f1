import json

import pytest


def test_another_credit_keeps_what_is_upstream(ask, recorded_ledger):
    before = len(recorded_ledger[1].attempts())
    code, out, _ = ask("whatif", "a@1", "credit=rloo", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["exchanged"], found["kept"]) == (["C"], ["S", "R", "F"])
    old, new = found["recorded"], found["whatif"]
    assert all(old[name] == new[name] for name in "XZF")
    assert old["G"] != new["G"]
    assert old["proposed"] != new["proposed"]
    assert old["feedback"] == new["feedback"]
    assert old["cost"].keys() == new["cost"].keys()
    assert found["branch"] is None
    assert recorded_ledger[1].head().n == 3
    assert len(recorded_ledger[1].attempts()) == before


def test_a_setting_of_the_update_alone(ask):
    code, out, _ = ask("whatif", "a@1", "update.lr=3e-6")
    assert code == 0
    assert out.splitlines()[0].strip() == "a@1: U exchanged, S, R, F, C kept"
    assert out.splitlines()[-1] == "nothing was appended; --branch NAME appends it"
    code, out, _ = ask("whatif", "a@1", "update.gates.grad_norm.max=1e-9", "--json")
    assert json.loads(out)["whatif"]["decision"] == "reject"


def test_what_is_before_the_rollout_runs_it_all_again(ask):
    for word in ("environment.look=0.1", "inference.temperature=0.9", "rollout.attempts=2"):
        code, out, _ = ask("whatif", "a@1", word, "--json")
        found = json.loads(out)
        assert code == 0
        assert found["kept"] == ["S"]
        assert found["recorded"]["X"] == found["whatif"]["X"]
        assert found["recorded"]["Z"] != found["whatif"]["Z"]
    code, out, _ = ask("whatif", "a@1", "task.codes=4", "--json")
    found = json.loads(out)
    # the task is the sampler's too: both change as one
    assert found["exchanged"] == ["task", "S"]
    assert found["recorded"]["X"] != found["whatif"]["X"]


def test_a_nested_group_and_a_key_of_deepspeed(ask):
    code, out, _ = ask("whatif", "a@1", "update/objective=gspo", "--json")
    assert (code, json.loads(out)["exchanged"]) == (0, ["U"])
    words = ["+update/gate@update.gates.ratio=ratio", "update.deepspeed.wall_clock_breakdown=false"]
    code, out, _ = ask("whatif", "a@1", *words, "--json")
    gates = [gate["name"] for gate in json.loads(out)["whatif"]["gates"]]
    assert code == 0
    assert "ratio" in gates


def test_a_branch_keeps_the_round(ask, recorded_ledger):
    code, out, _ = ask("whatif", "a@2", "credit=rloo", "--branch", "other", "--json")
    assert code == 0
    found = json.loads(out.splitlines()[-1])
    _, lineage, _ = recorded_ledger
    head = lineage.head("other")
    assert found["branch"]["seal"] == head.seal
    assert (head.n, head.document.parent) == (2, lineage.at(1).identity)
    exact = head.document.exact
    assert exact["v"]["C"]["name"] == "credit.rloo@1"
    assert exact["omega"] == lineage.at(2).document.exact["omega"]
    noted = head.document.sealed["exchange"]
    assert (noted["of"], noted["taken"]) == (lineage.at(2).seal, ["S", "R", "F"])
    assert "seconds/R" in noted["avoided"]
    # without a branch the same round comes out
    again = json.loads(ask("whatif", "a@2", "credit=rloo", "--json")[1])
    assert again["whatif"]["proposed"] == exact["proposed"]
    assert ask("replay", "a@other@2")[0] == 0
    assert ask("verify", "a")[0] == 0
    code, _, err = ask("whatif", "a@2", "credit=rloo", "--branch", "other")
    assert (code, err) == (2, "the branch 'other' is there already; choose another name\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["credit=group"], "nothing is exchanged: every map is the one that the record names"),
        (["credit=nonsense"], "there is no credit 'nonsense'; there are best_of, "),
        (["update.lrr=1"], "update.lrr=1: there is no key 'update.lrr'; did you mean update.lr"),
        (
            ["seeds.root=1"],
            "seeds.root=1: a what-if keeps every seed, so seeds cannot be exchanged",
        ),
        (["model=hf"], "model=hf: a round starts from its recorded state, so model cannot be "),
        (["credit=rloo,group"], "credit=rloo,group has several values; a what-if takes one"),
        (["rounds=5"], "rounds=5: 'rounds' is no map; exchange task, "),
        (["update.lr=fast"], "update.lr is 'fast'; it must be a number"),
        (["credit=[rloo"], "'credit=[rloo' cannot be read as key=value; "),
    ],
)
def test_what_cannot_be_exchanged_is_one_sentence(ask, words, sentence):
    code, out, err = ask("whatif", "a@1", *words)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1
