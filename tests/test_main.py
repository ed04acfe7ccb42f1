"""The command line as a stranger meets it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "transformers", "mlflow", "deepspeed", "hydra", "omegaconf", "numpy", "typer"}
Q = "+round=quickstart"
HF = (Q, "model=hf")

# what was typed, and what the sentence says
REFUSED = [
    # rounds, sweeps, verbs
    (
        "+round=nosuch",
        "there is no round 'nosuch'; there are gated, quickstart, smollm2_arithmetic",
    ),
    ("+round=quikstart", "there is no round 'quikstart'; did you mean quickstart?"),
    ("round=quickstart", "round=quickstart cannot be; write +round=quickstart"),
    ("rounds=quickstart", "rounds=quickstart cannot be; write +round=quickstart"),
    ("quickstart", "'quickstart' is no verb; to run it, write +round=quickstart"),
    ("lgo", "there is no verb 'lgo'; did you mean log?"),
    ("frobnicate", "there is no verb 'frobnicate'; there are "),
    ("+sweeps=nosuch", "there is no sweeps 'nosuch'; there are credit, gates"),
    ("sweeps=credit", "sweeps=credit cannot be; write +sweeps=credit"),
    ("+sweep=credit", "+sweep=credit cannot be; write +sweeps=credit"),
    ("+sweeps=credit,gates", "sweep files cannot be swept over; run one at a time"),
    # words, options, keys
    ((Q, "foo"), "'foo' is no key=value, such as foo=…"),
    ("--foo", "there is no option --foo; `--help` shows what there is"),
    ("--mutirun", "there is no option --mutirun; did you mean --multirun?"),
    ("--cfg", "--cfg lacks its value, such as --cfg job"),
    (("--cfg", "jbo"), "--cfg is 'jbo'; it is job, hydra or all"),
    ((Q, "rouds=3"), "there is no key 'rouds'; did you mean rounds?"),
    ((Q, "lr=3"), "there is no key 'lr'; did you mean update.lr?"),
    ((Q, "updte.lr=3"), "there is no key 'updte.lr'; did you mean update.lr?"),
    ((Q, "lineage.nam=a"), "there is no key 'lineage.nam'; did you mean lineage.name"),
    ((Q, "+lineage.nam=a"), "lineage has no key 'nam'; it has name, parent, branch"),
    ((Q, "+foo=1"), "there is no key 'foo'; `--cfg job` shows the keys there are"),
    ((Q, "+update.foo=1"), "there is no key update.foo; update has objective, gates, lr,"),
    ((Q, "+rounds=3"), "there is a rounds already; write it without the plus"),
    ((Q, "update.lr=[1"), "update.lr=[1 cannot be read as key=value; put quotes around"),
    ((Q, "~credit"), "credit is None; it must be a section with keys of its own"),
    # options of groups
    ((Q, "credit=grup"), "there is no credit 'grup'; did you mean group?"),
    ((Q, "credit=rloo,group"), "credit=rloo,group has several values; add -m to run each"),
    ((Q, "+credit=rloo"), "credit is chosen twice; write credit=… once, without a plus"),
    (("-m", Q, "credit=rloo,grup"), "there is no credit 'grup'; did you mean group?"),
    # types and ranges
    ((Q, "update.lr=hello"), "update.lr is 'hello'; it must be a number"),
    ((Q, "rounds=x"), "rounds is 'x'; it is a whole number, at least 1"),
    ((Q, "rounds=0"), "rounds is 0; it is a whole number, at least 1"),
    ((Q, "ranks=0"), "ranks is 0; it is a whole number, at least 1"),
    ((Q, "rollout.attempts=1.5"), "rollout.attempts is 1.5; it must be a whole number"),
    ((Q, "lineage=foo"), "lineage is 'foo'; it must be a section with keys of its own"),
    ((Q, "lineage.parent=12e4"), "text that looks like a number needs quotes"),
    ((Q, "seeds.root=null"), "seeds.root is None; it must be text or a whole number"),
    ((Q, "store.snapshot_every=x"), "store.snapshot_every is 'x'; it is a whole number"),
    ((Q, "update.betas=3"), "update.betas is 3; it must be a list, such as [a,b]"),
    ((Q, "update.gates=null"), "update.gates is None; it must be a section"),
    ((Q, "update.gates.kl=5"), "update.gates.kl is 5; choose one of its group"),
    ((Q, "update.objective=5"), "update.objective is 5; choose one of its group"),
    ((Q, "packages=foo"), "packages is 'foo'; it is a list of package names"),
    ((Q, "inference.temperature=0"), "greedy episodes teach nothing; it must be above 0"),
    # budgets
    ((Q, "budget=3"), "budget is 3; it must be a section with keys of its own"),
    ((Q, "budget.tokens.sampled=-3"), "budget.tokens.sampled is -3; it is a positive number"),
    ((Q, "budget.wood=3"), "there is no key 'budget.wood'; budget has environment, flops,"),
    ((Q, "+budget.wood=3"), "budget.wood limits what is not counted; what is: tokens.prompt,"),
    # maps that do not fit together
    (
        (Q, "rollout.attempts=1"),
        "credit group compares the attempts at a problem, but attempts is 1",
    ),
    ((Q, "environment=arithmetic"), "the environment Arithmetic cannot begin with a problem of"),
    # classes from elsewhere
    ((Q, "credit._target_=os.system"), "only harness may be used, add others to `packages`"),
    ((Q, "credit._target_=harness.identity.digest"), "it must name a dataclass"),
    # models
    (HF, "model.name is missing; give it a value"),
    ((*HF, "model.name=nowhere/at/all"), "it must be an existing folder or a hub name"),
    ((*HF, "model.name=owner/model"), "for the hub name 'owner/model'; give the commit, 40 hex"),
    ((*HF, "model.name=.."), ".. is not a model folder; it needs config.json, safetensors"),
    ("model=smollm2", "SmolLM2 is not on this machine; `python -m harness fetch smollm2` brings"),
    # places
    ((Q, "store.root=/proc/nope"), "store.root is '/proc/nope'; it must be a folder that can be"),
    ((Q, "ledger.uri=./mlruns"), "'./mlruns' names an old file store, which cannot hold a ledger"),
    ((Q, "ledger.uri=sqlite:////proc/nope/a.db"), "lies in no folder; make /proc/nope first"),
    ((Q, "ledger.uri=ftp://x"), "the tracking URI 'ftp://x' is of no kind that MLflow serves"),
    ((Q, "lineage.branch=side"), "the branch 'side' does not exist yet; say what it forks from"),
    ((Q, "lineage.parent=a@1"), "lineage.parent is 'a@1', but there is no ledger at"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, on a machine where nothing was fetched."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.mark.parametrize(
    ("words", "sentence"), REFUSED, ids=lambda x: x if isinstance(x, str) else " ".join(x)
)
def test_a_mistake_gets_one_sentence_and_leaves_nothing(here, folder, words, sentence):
    said = here(folder, *([words] if isinstance(words, str) else words))
    assert said.code == 2
    assert sentence in said.err
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    for inside in ("full_key", "object_type", "hydra.cc", "Traceback", "struct", "HYDRA"):
        assert inside not in said.err
    assert list(folder.iterdir()) == []


def test_the_environment_variable_of_mlflow_is_held_to_the_same(here, folder, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")
    said = here(folder, Q)
    assert (said.code, list(folder.iterdir())) == (2, [])
    assert "mlflow migrate-filestore" in said.err


def test_a_file_that_is_no_database_is_refused(here, folder):
    (folder / "mlflow.db").write_text("not a database")
    said = here(folder, Q)
    assert said.code == 2
    assert "does not answer" in said.err
    assert said.err.count("\n") == 1
    assert (folder / "mlflow.db").read_text() == "not a database"


def test_a_folder_that_cannot_be_written_to_is_refused(here):
    # root may write anywhere but into the kernel's own files
    said = here(Path("/proc/self"), Q)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert "/proc/" in said.err


def test_without_a_compiler_a_round_that_needs_one_is_refused(here, folder, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    said = here(
        folder, Q, "update.deepspeed.zero_optimization.stage=3",
        "+update.deepspeed.zero_optimization.offload_optimizer={device:nvme,nvme_path:/tmp}",
    )  # fmt: skip
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "no-such-compiler" in said.err
    assert "install g++" in said.err


def test_what_must_be_compiled_is_refused_without_a_compiler(monkeypatch):
    from types import SimpleNamespace

    from harness import preflight

    disk = SimpleNamespace(
        deepspeed={"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}
    )
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"nvme.*no-such-compiler.*install g\+\+, or use cpu"):
        preflight.need_compiler(disk)
    preflight.need_compiler(SimpleNamespace(deepspeed={"zero_optimization": {"stage": 3}}))
    monkeypatch.setenv("CXX", sys.executable)
    preflight.need_compiler(disk)


def test_a_process_of_its_own_says_the_same(apart, tmp_path):
    started = apart(tmp_path, Q, "update.lr=hello")
    out, err = started.communicate()
    assert (started.returncode, out) == (2, "")
    assert err == "error: update.lr is 'hello'; it must be a number\n"
    assert list(tmp_path.iterdir()) == []


def test_a_composed_configuration_is_printed_without_running(here, folder):
    for words in ((Q, "--cfg", "job"), ("--cfg", "job", Q), ("-c", "job", Q)):
        said = here(folder, *words)
        assert (said.code, said.err) == (0, "")
        assert "attempts: 16" in said.out
    assert list(folder.iterdir()) == []


def test_deepspeeds_own_keys_need_no_plus(here, folder):
    said = here(folder, Q, "update.deepspeed.zero_optimization.stage=2", "--cfg", "job")
    assert "stage: 2" in said.out


def test_help_is_whole_and_imports_nothing_heavy(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "importtime", "-m", "harness", "--help"]
    seconds, runs = [], []
    for _ in range(3):
        began = time.monotonic()
        runs.append(subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True))
        seconds.append(time.monotonic() - began)
    told = runs[0].stderr.splitlines()
    imported = {line.split("|")[2].strip().split(".")[0] for line in told if line.count("|") == 2}
    assert runs[0].returncode == 0
    assert min(seconds) < 1
    assert "harness" in imported
    assert not HEAVY & imported
    out = runs[0].stdout
    for word in ("quickstart", "smollm2_arithmetic", "verify", "rloo", "budget.<dimension>"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("words", [(), ("-h",), (Q, "--help")])
def test_help_is_given_wherever_it_is_asked_for(here, folder, words):
    said = here(folder, *words)
    assert said.code == 0
    assert said.out.startswith("Agentic post-training rounds")
