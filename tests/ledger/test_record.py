import pytest
import rounds

from harness.ledger import projection, record
from harness.ledger.record import Broken, Document


def a_genesis():
    return Document(None, None, rounds.begin(), {"branch": "main"})


class Parent:
    document = a_genesis()
    n = -1


def a_record(sealed=None, **changes):
    exact = rounds.exact(Parent, **changes)
    return record.following(Parent.document, "main", exact, sealed or rounds.sealed(0), {})


def test_a_document_is_read_back_with_both_digests():
    document = a_record()
    again = Document.parse(document.encoded)
    assert (again.identity, again.seal, again.n) == (document.identity, document.seal, 0)
    assert again.parent == a_genesis().identity


def test_the_identity_is_golden():
    assert a_genesis().identity == (
        "sha256:6583f7e8300003898850016389585548dbce78c5df7708708247196f2e62da70"
    )


def test_readings_move_the_seal_and_not_the_identity():
    one, two = a_record(), a_record({"metered": {"seconds": 9.0}})
    assert one.identity == two.identity
    assert one.seal != two.seal
    assert a_record(accept=False).identity != one.identity


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b'{"a":1}', a_record().encoded + b" "]
)
def test_what_is_no_record_is_refused(data):
    with pytest.raises(Broken, match=r"record\.json is"):
        Document.parse(data)


def test_measured_infinities_are_spelt_and_shown():
    document = a_record()
    assert document.sealed["metrics"]["policy/kl"] == "inf"
    shown = projection.metrics(document)
    assert shown["policy/kl"] == float("inf")
    assert shown["reward/std"] != shown["reward/std"]
    assert (shown["cost/tokens"], shown["cost_total/seconds"]) == (10.0, 0.1)


def test_totals_are_exact_beyond_floats():
    big = str(2**60 + 1)
    assert record.totals({"tokens": big}, {"c": {"tokens": "1"}}, {})["tokens"] == str(2**60 + 2)


def test_totals_of_memory_are_the_most_that_was_held():
    after: dict = {}
    for peak in (3.0, 7.0, 5.0):
        after = record.totals(after, {}, {"metered": {"memory/peak_bytes": peak, "seconds/R": 1.0}})
    assert after == {"memory/peak_bytes": 7.0, "seconds/R": 3.0}


def test_a_round_follows_its_parent():
    with pytest.raises(ValueError, match="round 3 cannot follow round -1"):
        a_record(n=3)
    with pytest.raises(ValueError, match=r"are names of a record's own fields"):
        projection.params(a_record({"params": {"X": "1"}}))


def test_what_was_avoided_sums_along_a_chain_less_what_was_spent_after_all():
    found = {"maps": {"R": {"avoided": {"seconds/R": 2.0, "steps": 3}}, "C": {"found": False}}}
    after = record.avoided({}, {"memo": found})
    assert after == {"seconds/R": 2.0, "steps": 3.0}
    after = record.avoided({"avoided": after}, {"memo": {**found, "repaid": {"steps": 4}}})
    assert after == {"seconds/R": 4.0, "steps": 2.0}
    for none in ({}, {"memo": None}):
        assert record.avoided({}, none) == {}
