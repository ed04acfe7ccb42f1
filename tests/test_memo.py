"""Entries of the memo: what they are kept under, and how they are shared."""

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.feedback.function import Function
from harness.feedback.verified import Verified
from harness.memo import Folder, Kept, Memo, digest_of, unseen
from harness.store import Store


@dataclass(frozen=True)
class Theirs:
    """A map of somebody else's."""

    version: ClassVar[str] = "1"


def reward(completion):
    return float(len(completion))


def test_what_no_fingerprint_sees_is_never_kept():
    assert unseen(Verified()) == ""
    said = "it calls a function of the user's, whose code is not looked at"
    assert unseen({"a": [Verified(), Function(f"{__file__}:reward")]}) == said
    assert unseen([Verified(), {"one": Theirs()}]).startswith(f"{__name__} is not of this project")


KEY = {"map": "R", "seed": "1"}


def test_an_entry_is_read_as_it_was_written(tmp_path):
    folder = Folder(tmp_path)
    entry = Kept(KEY, {"kind": "credit", "id": "x"}, 0.25, "a@0")
    assert folder.read("R", digest_of(KEY)) is None
    folder.write(entry)
    assert folder.read("R", digest_of(KEY)) == entry
    assert list(folder.all("R")) == [entry]
    (path,) = tmp_path.glob("R/*/*")
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:70], whole.replace(b"a@0", b"a@1"), b"\xff" * 99):
        path.write_bytes(damaged)
        assert folder.read("R", digest_of(KEY)) is None
    # an entry under another key is none either
    path.write_bytes(dataclasses.replace(entry, key={"map": "R", "seed": "2"}).encoded())
    assert folder.read("R", digest_of(KEY)) is None


CROWD = """
import json, sys
from pathlib import Path
from harness.memo import Folder, Kept, digest_of

folder, own, seen = Folder(Path(sys.argv[1])), int(sys.argv[2]), []
for i in range(200):
    key = {"map": "R", "seed": str(i % 7)}
    folder.write(Kept(key, {"id": "x" * 2000 * (own + 1)}, float(own), f"{own}@{i}"))
    entry = folder.read("R", digest_of(key))
    assert len(entry.result["id"]) == 2000 * (int(entry.seconds) + 1)
    seen.append(folder.count("R"))
print(json.dumps(seen))
"""


def test_many_processes_share_a_folder(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    crowd = [
        subprocess.Popen([sys.executable, "-c", CROWD, str(tmp_path), str(own)], text=True,
                         stdout=subprocess.PIPE, env=environment)
        for own in range(4)
    ]  # fmt: skip
    counts = [json.loads(process.communicate(timeout=120)[0]) for process in crowd]
    # every find is counted once, so that every k-th is checked
    assert sorted(n for seen in counts for n in seen) == list(range(1, 801))
    assert not list(tmp_path.glob("R/*/.*"))


def test_a_memo_lies_beside_local_values_or_where_it_is_told(tmp_path):
    assert Memo().folder(Store(str(tmp_path))) == Folder(tmp_path / "memo")
    assert Memo().folder(Store("s3://bucket/values")) is None
    assert Memo(root=str(tmp_path)).folder(Store("s3://bucket/values")) == Folder(tmp_path)
