import subprocess
import sys

from harness.verbs import names


def test_a_verb_is_a_file():
    assert {"log", "show", "verify", "repair"} <= set(names())
    assert not any(name.startswith("_") for name in names())


def test_asking_for_help_imports_nothing_heavy():
    code = (
        "import sys; from harness.verbs import app; app(['--help']); app(['verify', '--help']);"
        "print([m for m in ('mlflow', 'torch', 'transformers', 'hydra') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_wrong_request_is_one_sentence_and_code_2(call, tmp_path, monkeypatch):
    assert call("nonsense")[0] == 2
    assert call("verify", "--nonsense")[0] == 2
    code, out, err = call("verify", "none")
    assert (code, out) == (2, "")
    assert err == "there is no lineage 'none'; there are ['a']\n"
    monkeypatch.chdir(tmp_path)
    code, _, err = call("log")
    assert code == 2
    assert err.startswith("there is no ledger at 'sqlite:///mlflow.db'; run a round first")
    assert list(tmp_path.iterdir()) == []
