import numpy as np
import pytest
from numpy.testing import assert_array_equal

from harness.feedback.function import Function

SOURCE = """
def exact(completion, answer):
    return completion == answer

def everything(**given):
    assert set(given) == {"problem", "messages", "completion", "answer", "episode", "seed"}
    given["problem"]["answer"] = "spoilt"
    given["episode"]["turns"].clear()
    return len(given["messages"]) + len(given["seed"]) / 100

def drawn(seed):
    return int(seed[:4], 16)

def partial(answer):
    return None if answer == "b" else 1.5

def broken(completion):
    raise KeyError("answer")

def listed(completion):
    return [1.0, 0.0]

def nan(completion):
    return float("nan")

def needy(completion, tokenizer):
    return 0.0
"""


@pytest.fixture
def at(tmp_path):
    (tmp_path / "rewards.py").write_text(SOURCE)
    return lambda name: f"{tmp_path / 'rewards.py'}:{name}"


@pytest.fixture
def given(inputs):
    problems = [
        {"messages": [{"role": "user", "content": "x"}], "answer": "one\ntwo"},
        {"text": "y", "answer": "b"},
    ]
    return inputs([[0, 0], [0], [0], [0]], attempts=2, problems=problems,
                  texts=[["one", "two"], ["one"], ["a"], ["b"]])  # fmt: skip


def test_it_is_called_once_an_episode_with_what_it_takes(at, given):
    F = Function(at("exact"))(*given)
    assert F.rewards_B.tolist() == [1, 0, 0, 1]
    assert F.rewards_B.dtype == np.float64


def test_what_it_is_given_is_a_copy(at, given):
    X, Z, _ = given
    before = (X.id, Z.id)
    F = Function(at("everything"))(*given)
    assert F.rewards_B.tolist() == [1.32] * 4
    assert (type(X)(X.meta, X.arrays).id, type(Z)(Z.meta, Z.arrays).id) == before


def test_every_episode_has_its_own_luck(at, given):
    F = Function(at("drawn"))(*given)
    assert len(set(F.rewards_B.tolist())) == 4
    assert F.id == Function(at("drawn"))(*given).id


def test_none_is_an_episode_that_it_cannot_score(at, given):
    assert_array_equal(Function(at("partial"))(*given).rewards_B, [1.5, 1.5, np.nan, np.nan])


def test_an_exception_is_one_sentence_or_data(at, given):
    with pytest.raises(ValueError, match=r"broken raised KeyError on episode 0: 'answer'; mend it"):
        Function(at("broken"))(*given)
    F = Function(at("broken"), on_error="unscorable")(*given)
    assert np.isnan(F.rewards_B).all()


@pytest.mark.parametrize("name", ["listed", "nan"])
def test_anything_but_one_finite_number_is_an_error(at, given, name):
    with pytest.raises(ValueError, match="for episode 0; it returns one finite number, or None"):
        Function(at(name), on_error="unscorable")(*given)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("rewards", "it is package.module:function or file.py:function"),
        ("no_such_module:fn", "cannot be imported: ModuleNotFoundError: No module named"),
        ("no/such/file.py:fn", "cannot be imported: FileNotFoundError: there is no file"),
        ("math:no_such", "but math has no function 'no_such'"),
        ("math:pi", "but math has no function 'pi'"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_at_once(path, message):
    with pytest.raises(ValueError, match=message):
        Function(path)


def test_a_function_that_needs_something_else_is_refused_at_once(at):
    with pytest.raises(ValueError, match="takes 'tokenizer', which no episode has"):
        Function(at("needy"))
    with pytest.raises(ValueError, match="on_error is 'skip'; it is raise or unscorable"):
        Function(at("exact"), on_error="skip")


def test_a_module_beside_the_command_is_found(at, tmp_path, monkeypatch, given):
    (tmp_path / "rewards_beside_the_command.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    F = Function("rewards_beside_the_command:exact")(*given)
    assert F.rewards_B.tolist() == [1, 0, 0, 1]
