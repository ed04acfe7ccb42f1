"""Records of every schema that was ever written stay readable and verifiable."""

import hashlib
import json
from pathlib import Path

import pytest

from harness.ledger import projection
from harness.ledger.record import SCHEMA, Document

FOLDER = Path(__file__).with_name("schemas")
DIGESTS = json.loads((FOLDER / "digests.json").read_text())


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_a_stored_record_is_read_with_its_digests_and_shown(name):
    data = (FOLDER / name).read_bytes()
    document, kept = Document.parse(data), DIGESTS[name]
    assert "sha256:" + hashlib.sha256(data).hexdigest() == kept["bytes"]
    assert (document.schema, document.n) == (kept["schema"], kept["n"])
    assert (document.identity, document.seal) == (kept["identity"], kept["seal"])
    assert document.encoded == data
    assert projection.params(document)["ledger.seal"] == kept["seal"]
    projection.metrics(document)


def test_todays_schema_is_among_them_and_its_records_are_a_chain():
    assert SCHEMA in {kept["schema"] for kept in DIGESTS.values()}
    genesis, round_ = (
        Document.parse((FOLDER / f"v1-{name}.json").read_bytes()) for name in ("genesis", "round")
    )
    assert (round_.parent, round_.parent_seal) == (genesis.identity, genesis.seal)
    assert round_.exact["starting"] == genesis.resulting
