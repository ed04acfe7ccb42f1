import json


def test_log_gives_one_json_object_a_round(call):
    code, out, _ = call("log", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["n"] for row in rows] == [0, 1, 2]
    assert [row["decision"] for row in rows] == ["accept", "reject", "accept"]
    assert [row["parent"] for row in rows[1:]] == [row["id"] for row in rows[:-1]]
    assert [row["state_in"] for row in rows[1:]] == [row["state_out"] for row in rows[:-1]]
    assert rows[1]["state_in"] == rows[1]["state_out"] != rows[1]["proposed"]
    assert rows[1]["reward_mean"] == 0.125
    assert rows[1]["cost"] == {"steps": 2, "tokens": 11}
    assert set(rows[0]["versions"]) == set("SRFCUA")
    assert set(rows[0]["seeds"]) == {"task", "roll", "feed", "credit", "update"}


def test_log_shows_rounds_and_attempts(call):
    code, out, _ = call("log", "a")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[2:5]] == ["accept", "reject", "accept"]
    assert out.splitlines()[5] == "attempt at round 3 (failed after R): tokens 5"


def test_log_draws_branches(tmp_path, ledger):
    import rounds

    from harness.verbs.log import drawn

    lineage = ledger.begin("g", rounds.begin())
    for _ in range(4):
        rounds.append(lineage)
    own = rounds.append(lineage, lineage.at(1), branch="side", salt="x")
    rounds.append(lineage, branch="side")
    rounds.append(lineage, own, branch="deeper", salt="y")
    rounds.append(lineage, lineage.at(0), branch="early", salt="z")
    assert [line[:8].rstrip() for line in drawn(lineage)] == [
        "*", "| *", "| | *", "| |/", "* |", "| *", "|/", "*", "|     *", "|____/", "*", "*",
    ]  # fmt: skip
    assert [line.split()[-1] for line in drawn(lineage)[:3]] == ["(main)", "(side)", "(deeper)"]


def test_log_graph_names_the_lineage(call):
    code, out, _ = call("log", "--graph")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["a", *"****"]
