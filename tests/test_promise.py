"""States that are made where their tensors are asked for."""

from dataclasses import dataclass

import pytest

from harness.promise import Promise, kept, pending, promised
from harness.round import State


@dataclass(frozen=True)
class Half:
    id: str
    tensors: tuple = ()
    meta: tuple = ()


def chain(length, work):
    """A state, promised from the one before it, and so on."""
    state = State(Half("0"), Half("0"))
    for i in range(1, length + 1):
        start = state

        def make(i=i, start=start):
            work.append(kept(start).model.id)
            return State(Half(str(i)), Half(str(i)))

        promise = Promise({"model": str(i), "optimizer": str(i)}, make, start=start)
        state = promised(promise, Half("m", tensors={}), {})
    return state


def test_a_chain_of_promises_is_made_from_its_beginning():
    work = []
    state = chain(5000, work)
    assert state.exact() == {"model": "5000", "optimizer": "5000"}
    assert (pending(state) is None, work) == (False, [])
    assert kept(state).model.id == "5000"
    assert work == [str(i) for i in range(5000)]
    assert pending(state) is None
    assert kept(state).model.id == "5000"
    assert len(work) == 5000


def test_a_promise_that_comes_out_as_another_state_is_refused():
    promise = Promise({"model": "1", "optimizer": "1"}, lambda: State(Half("2"), Half("1")))
    with pytest.raises(ValueError, match="came out as 2…: the update is not deterministic here"):
        promise.keep()
