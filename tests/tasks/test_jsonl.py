import hashlib
import json
import re

import pytest
from scipy.stats import chisquare

from harness.identity import Version
from harness.round import Seed
from harness.tasks.jsonl import Jsonl

LEVEL = 1e-4
ROWS = [{"prompt": f"say {word}", "answer": word, "level": i} for i, word in enumerate("abc")]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_a_row_becomes_a_problem(path):
    assert Jsonl(str(path)).nth(1) == {
        "messages": [{"role": "user", "content": "say b"}],
        "answer": "b",
        "row": 1,
        "fields": {"level": 1},
    }


def test_draws_follow_the_empirical_law(path):
    task = Jsonl(str(path))
    counts = [0, 0, 0]
    for i in range(1500):
        counts[task.draw(Seed("0c" * 16).fold(i))["row"]] += 1
    assert chisquare(counts).pvalue > LEVEL
    assert sum(p for _, p in task.support()) == pytest.approx(1.0)
    assert all(task.probability(problem) == 1 / 3 for problem, _ in task.support())
    assert task.probability({**task.nth(1), "answer": "c"}) == 0.0
    assert task.probability({"row": 5}) == 0.0


def test_the_law_is_named_by_content_and_not_by_place(path, tmp_path):
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes(path.read_bytes())
    assert Version.of(Jsonl(str(path))) == Version.of(Jsonl(str(moved)))
    assert Jsonl(str(path)).digest == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    moved.write_bytes(path.read_bytes() + b"\n")
    assert Version.of(Jsonl(str(path))) != Version.of(Jsonl(str(moved)))


def test_a_problem_that_is_changed_does_not_change_the_task(path):
    task = Jsonl(str(path))
    task.nth(0)["messages"].clear()
    assert task.nth(0)["messages"]


def test_messages_instead_of_a_prompt(tmp_path):
    path = tmp_path / "chat.jsonl"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\u2028!"}]
    path.write_text(json.dumps({"chat": chat}, ensure_ascii=False), encoding="utf-8")
    assert Jsonl(str(path), messages="chat", answer=None).nth(0)["messages"] == chat


def test_a_folder_of_datasets_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": data}).save_to_disk(str(tmp_path / "split"))
    one = Jsonl(str(tmp_path / "one"))
    assert one.nth(2)["answer"] == "c"
    assert Jsonl(str(tmp_path / "split"), split="train").digest == one.digest
    with pytest.raises(ValueError, match=r"^task.split is None; .* has the splits train$"):
        Jsonl(str(tmp_path / "split"))
    with pytest.raises(ValueError, match=r"is not a folder that datasets' save_to_disk made"):
        Jsonl(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("", {}, "PATH is empty; it needs one row at least"),
        ("\n \n", {}, "PATH is empty; it needs one row at least"),
        ('{"prompt": "a", "answer": 1}\n\n"a', {},
            "PATH line 3 is not JSON: Unterminated string starting at"),
        ("[1]", {}, "PATH line 1 is a list; a row is a JSON object"),
        ('{"prompt": "a"}', {}, "PATH line 1 has no field 'answer'; it has prompt"),
        ('{"q": "a", "answer": 1}', {}, "PATH line 1 has no field 'prompt'; it has answer, q"),
        ('{"prompt": 3, "answer": 1}', {}, "PATH line 1 has prompt 3; a prompt is a text"),
        (
            '{"prompt": "a", "answer": NaN}', {},
            "PATH line 1 cannot enter a record: $.answer: nan cannot enter a record; give a finite "
            "number",
        ),
        (
            '{"m": [{"role": "king", "content": "a"}]}', {"messages": "m", "answer": None},
            "PATH line 1 has m that are no chat; give a list of objects with role (system, user, "
            "assistant) and content",
        ),
        (
            '{"prompt": "a", "answer": 1}', {"digest": "sha256:00"},
            "task.digest is sha256:00, but PATH has SHA",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(tmp_path, content, fields, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    sha = "sha256:" + hashlib.sha256(content.encode()).hexdigest()
    message = message.replace("PATH", str(path)).replace("SHA", sha)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Jsonl(str(path), **fields)


def test_a_missing_file_and_other_encodings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^task.path is no.jsonl, which does not exist; give a"):
        Jsonl("no.jsonl")
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(ValueError, match=r"is not UTF-8 at byte 12; give UTF-8$"):
        Jsonl(str(path))
