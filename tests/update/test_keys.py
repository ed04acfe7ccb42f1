"""DeepSpeed's own keys are spelt as it spells them."""

import importlib.util
from pathlib import Path

import pytest

from harness.update.keys import FREE, OWNED, STATEFUL, check


def test_every_key_is_one_that_deepspeed_reads():
    origin = importlib.util.find_spec("deepspeed").origin
    sources = Path(origin).parent.rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in sources)
    for key in (*FREE, *OWNED, *STATEFUL):
        assert f'"{key}"' in text or f"'{key}'" in text, key
    check(FREE)


@pytest.mark.parametrize(
    ("key", "rest"),
    [
        ("zero_optimisation", "did you mean zero_optimization?"),
        ("wall_clock_brakdown", "did you mean wall_clock_breakdown?"),
        ("qqqq", "there are activation_checkpointing, aio, "),
    ],
)
def test_a_key_that_there_is_not_is_refused_with_the_nearest(key, rest):
    with pytest.raises(ValueError, match="is no key of DeepSpeed's") as refused:
        check([key])
    text = str(refused.value)
    assert text.startswith(f"update.deepspeed.{key} is no key of DeepSpeed's; {rest}")
    assert "\n" not in text


def test_a_misspelt_key_is_refused_from_the_command_line(here, project):
    said = here(project, "+round=quickstart", "+update.deepspeed.zero_optimisation.stage=1")
    assert (said.code, said.out) == (2, "")
    assert "did you mean zero_optimization?" in said.err
    assert said.err.count("\n") == 1
