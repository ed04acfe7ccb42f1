import sys
from pathlib import Path

import pytest

from harness.exactness.recorded import Recorded

sys.path.insert(0, str(Path(__file__).parents[1] / "policies"))


@pytest.fixture(scope="session")
def session_of_a(recorded_ledger):
    """One session for all tests that only read it."""
    from harness.exactness.recorded import config_of, session_of

    ledger, lineage, store = recorded_ledger
    return session_of(ledger, lineage, config_of(lineage.at(0)), store)


@pytest.fixture
def opened(recorded_ledger, session_of_a):
    """A recorded round by its index."""
    ledger, lineage, store = recorded_ledger

    def at(n: int) -> Recorded:
        entry = lineage.at(n)
        return Recorded.open(ledger, lineage, entry, store=store, session=session_of_a)

    return at
