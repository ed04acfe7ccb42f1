from typer.testing import CliRunner

from harness.verbs import cli


def test_every_kernel_is_measured_dry_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["bench", "kernels", "--dry"])
    assert done.exit_code == 0, done.output
    for kernel in ("credit_objective", "linear_policy", "philox_sample", "policy_rows"):
        assert kernel in done.output
    assert all(float(line.split()[-1]) > 0 for line in done.output.splitlines() if "ratio" in line)
    assert done.output.count("ratio") > 10
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_measured_is_refused():
    done = CliRunner().invoke(cli, ["bench", "nothing"])
    assert isinstance(done.exception, ValueError)
    assert "'nothing' cannot be measured" in str(done.exception)
