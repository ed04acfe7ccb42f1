"""State and parameters that ZeRO-3 offloads to the host: nothing is compiled for them."""

WORDS = ("+round=quickstart", "rollout.attempts=4", "memo=off", "lineage.name=a",
         "store.snapshot_every=1", "update.gates.kl.budget=0.03")  # fmt: skip
OFFLOAD = "{stage:3,offload_optimizer:{device:cpu},offload_param:{device:cpu}}"


def rows(here, folder, experiment="harness"):
    return here(folder, "log", "a", "--json", "--experiment", experiment).rows


def test_rounds_with_offloaded_state_are_the_same_stopped_or_not(here, project, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    offload = f"+update.deepspeed.zero_optimization={OFFLOAD}"
    for experiment, counts in {"whole": (4,), "parts": (1, 2, 4)}.items():
        for n in counts:
            said = here(project, *WORDS, offload, f"rounds={n}", f"ledger.experiment={experiment}")
            assert said.code == 0, said.err
    whole, parts = (rows(here, project, name) for name in ("whole", "parts"))
    assert [row["id"] for row in whole] == [row["id"] for row in parts]
    assert {row["decision"] for row in whole} == {"accept", "reject"}
    assert here(project, "verify", "a", "--experiment", "whole").code == 0
    assert here(project, "replay", "a@2", "--experiment", "whole").code == 0
