"""A state that is known by its identifiers, and made where its tensors are asked for.

What U gave once is named in the memo; its bytes may be in the store, or not be kept at all. Then
they are what U gives again, from a state that may itself be a promise: a chain of them is made from
its beginning on. A state that comes out as another one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.round import State


@dataclass(eq=False)
class Promise:
    """How a state can be made."""

    ids: Mapping[str, str]
    make: Callable[[], State]
    read: Callable[[], State | None] = lambda: None
    """The state, where it lies ready."""
    start: State | None = None
    """What it is made from."""
    avoided: Mapping[str, float] = field(default_factory=dict)
    """Cost that is not spent as long as the state is not made."""
    repay: Callable[[Mapping[str, float]], None] = lambda cost: None
    """Told that cost when it is spent after all."""
    made: State | None = None
    worked: bool = False
    """Whether it was made by work."""

    def keep(self) -> State:
        """The state. Raises ValueError where it comes out as another one."""
        path: list[Promise] = []
        at: Promise | None = self
        while at is not None and at.made is None:
            at.made = at.read()
            if at.made is None:
                path.append(at)
                at = pending(at.start)
        for promise in reversed(path):
            promise._work()
        assert self.made is not None
        return self.made

    def _work(self) -> None:
        made = self.make()
        if made.exact() != dict(self.ids):
            raise ValueError(
                f"the state {self.ids['model'][:19]}… that the memo names came out as "
                f"{made.model.id[:19]}…: the update is not deterministic here; give memo=off"
            )
        self.made, self.start, self.worked = made, None, True
        self.repay(self.avoided)


@dataclass(frozen=True, eq=False)
class Promised:
    """One half of a promised state: an artifact."""

    kind: str
    id: str
    promise: Promise = field(repr=False)
    known: Mapping[str, Any] | None = field(repr=False)
    """Its metadata, where that is known."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """Of the tensors of a model: who counts its work need not make it."""
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    base: Any = field(default=None, repr=False)

    @property
    def real(self) -> Any:
        return getattr(self.promise.keep(), self.kind)

    @property
    def meta(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.real.meta if self.known is None else self.known
        return found

    @property
    def tensors(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.real.tensors
        return found

    def with_tensors(self, tensors: Mapping[str, Any]) -> Any:
        return self.real.with_tensors(tensors)


def promised(promise: Promise, model: Any, metas: Mapping[str, Any]) -> State:
    """The state of a promise.

    model: one of the same shapes, tokenizer and base; metas: metadata of model and optimizer, where
    it is known.
    """
    files, shapes = getattr(model, "files", {}), getattr(model, "shapes", None)
    if shapes is None:
        shapes = {name: tuple(tensor.shape) for name, tensor in model.tensors.items()}
    return State(
        Promised(
            "model",
            promise.ids["model"],
            promise,
            metas.get("model"),
            shapes,
            files,
            getattr(model, "base", None),
        ),
        Promised("optimizer", promise.ids["optimizer"], promise, metas.get("optimizer")),
    )


def pending(state: State | None) -> Promise | None:
    """The promise of a state that is not made yet."""
    promise: Promise | None = getattr(state and state.model, "promise", None)
    return promise if promise is not None and promise.made is None else None


def kept(state: State) -> State:
    """The state itself, made if it was only promised."""
    promise: Promise | None = getattr(state.model, "promise", None)
    return state if promise is None else promise.keep()
