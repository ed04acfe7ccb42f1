import pytest
import rounds

from harness.ledger import address
from harness.ledger.entry import Conflict


@pytest.fixture
def lines(ledger):
    one = ledger.begin("one/a=1", rounds.begin())
    for _ in range(2):
        rounds.append(one)
    rounds.append(one, next(iter(one.walk())), branch="side", salt="x")
    two = ledger.begin("two", rounds.begin(), {"platform": "another"})
    rounds.append(two)
    return ledger, one, two


def test_every_form_of_address_leads_to_its_record(lines):
    ledger, one, two = lines
    entries = list(one.walk())

    def at(text):
        line, entry = address.record(ledger, text)
        return line.name, entry.branch, entry.n

    assert at("one/a=1") == ("one/a=1", "main", 1)
    assert at("one/a=1@0") == ("one/a=1", "main", 0)
    assert at("one/a=1@-1") == ("one/a=1", "main", -1)
    assert at("one/a=1@side") == ("one/a=1", "side", 0)
    assert at("one/a=1@side@0") == ("one/a=1", "side", 0)
    assert at("one/a=1@side@-1") == ("one/a=1", "main", -1)
    assert at("@0") == ("two", "main", 0)
    assert at(entries[2].identity[7:15]) == ("one/a=1", "main", 1)
    assert at(entries[1].seal) == ("one/a=1", "main", 0)
    assert at(two.genesis.seal[:20])[2] == -1


def test_an_identity_at_two_places_is_refused_with_the_places(lines):
    ledger, one, _ = lines
    prefix = one.at(0).identity[:20]
    with pytest.raises(ValueError, match=r"beginning of 2 records: one/a=1@main@0, two@main@0"):
        address.record(ledger, prefix)


def test_an_attempt_is_no_record(lines):
    ledger, one, _ = lines
    with pytest.raises(Conflict), one.attempt(one.at(0)) as attempt:
        rounds.append(one, one.at(0), attempt=attempt, salt="late")
    lost = [a for a in one.attempts() if a.run == attempt.run]
    assert [a.state for a in lost] == ["beaten"]
    identity = ledger.client.get_run(attempt.run).data.params["ledger.identity"]
    with pytest.raises(ValueError, match="no record begins with"):
        address.record(ledger, identity)


@pytest.mark.parametrize("text", ["one/a=1@x@y", "one/a=1@1@side", "a@b@c@1"])
def test_what_is_no_address_is_refused(lines, text):
    with pytest.raises(ValueError, match="is no address; give NAME, NAME@N or NAME@BRANCH@N"):
        address.record(lines[0], text)


def test_what_is_not_there_is_named(lines):
    ledger = lines[0]
    with pytest.raises(ValueError, match="there is no lineage 'none'"):
        address.record(ledger, "none")
    with pytest.raises(ValueError, match="has no round 7 on branch 'main'; its head is round 0"):
        address.record(ledger, "@7")
