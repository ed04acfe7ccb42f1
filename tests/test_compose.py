"""Sweeps, and what Hydra says in our words."""

from harness.compose import closest, explain, parted

SMALL = ("rollout.attempts=4", "rounds=1")


def heads(here, folder):
    return {row["lineage"]: row for row in here(folder, "log", "--all", "--json").rows}


def test_every_arm_is_a_lineage_and_one_that_fails_stops_no_other(here, project):
    arms = ("credit=rloo,group", "seeds.root=1,2", "inference.temperature=0,1")
    said = here(project, "-m", "+round=quickstart", *SMALL, *arms)
    assert said.code == 2
    assert said.err.count("greedy episodes teach nothing") == 4
    assert "8 arms, 4 failed" in said.out
    rows = heads(here, project)
    assert len(rows) == 4
    assert len({row["id"] for row in rows.values()}) == 4
    assert {row["n"] for row in rows.values()} == {0}
    assert not (project / "multirun.yaml").exists()


def test_a_sweep_file_sets_its_own_arms_and_the_command_line_wins(here, project):
    said = here(project, "+sweeps=credit", *SMALL, "seeds.root=7")
    assert said.code == 0
    assert "3 arms, 0 failed" in said.out
    rows = heads(here, project)
    assert {row["versions"]["C"]["name"] for row in rows.values()} >= {"credit.group@1"}
    # common random numbers: arms share the seeds of task and rollout, and no other
    assert len({row["seeds"]["roll"] for row in rows.values()}) == 1
    assert len({row["seeds"]["update"] for row in rows.values()}) == 3
    again = here(project, "+sweeps=credit", *SMALL, "seeds.root=7")
    assert again.out.count("nothing to do") == 3


def test_the_sweep_of_gates_rejects_more_the_tighter_it_is(here, project):
    tight = "update.gates.kl.budget=0.001,10.0"
    said = here(project, "+sweeps=gates", *SMALL, "seeds.root=1", "update.lr=1e-2", tight)
    assert said.code == 0
    assert sorted(row["decision"] for row in heads(here, project).values()) == ["accept", "reject"]


def test_options_and_words_are_parted_wherever_they_stand():
    options, words = parted(["a=1", "-m", "b=2", "-c", "job", "--package=p"])
    assert options == ["--multirun", "--cfg", "job", "--package", "p"]
    assert words == ["a=1", "b=2"]


def test_a_suggestion_is_near_or_there_is_none():
    keys = ["rounds", "update.lr", "lineage.name", "budget.tool"]
    assert closest("rouds", keys) == "did you mean rounds?"
    assert closest("lr", keys) == "did you mean update.lr?"
    assert closest("budget.wood", keys) == ""


def test_an_error_without_words_is_named():
    assert explain(RuntimeError(), []) == "RuntimeError"
    assert explain(RuntimeError("first\nsecond"), []) == "first"
