import re

import pytest

from harness.policies.hf import Hf
from harness.policies.model import write_folder
from harness.policies.tiny import Tiny


def test_a_folder_is_read(tmp_path):
    model = Tiny().initial()
    write_folder(model, tmp_path)
    assert Hf(str(tmp_path), dtype="float32").initial().id == model.id


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"name": "/no/such/folder"},
            "model.name is '/no/such/folder'; it must be an existing folder or a hub name",
        ),
        (
            {"name": "owner/model"},
            "model.revision is None for the hub name 'owner/model'; give the commit, 40 hex "
            "digits, or an existing folder as model.name",
        ),
        (
            {"name": "owner/model", "revision": "main"},
            "model.revision is 'main' for the hub name 'owner/model'; give the commit, 40 hex "
            "digits, or an existing folder as model.name",
        ),
        (
            {"name": "a/b", "revision": "0" * 40, "dtype": "int8"},
            "model.dtype is 'int8'; it is one of float32, bfloat16, float16",
        ),
    ],
)
def test_what_does_not_pin_a_model_is_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Hf(**fields)


def test_a_hub_that_does_not_answer_is_a_refusal(monkeypatch):
    import huggingface_hub

    def unreachable(*args, **kwargs):
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    message = f"owner/model at {'0' * 40} cannot be had from the hub: no route to host"
    with pytest.raises(ValueError, match=f"^{message}$"):
        Hf("owner/model", "0" * 40).initial()
