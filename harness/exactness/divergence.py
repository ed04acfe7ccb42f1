"""Where two results of one map first differ: the episode, turn and token, with both values.

Floats are compared by their bits: NaN equals itself, and 0.0 differs from -0.0. Axes as in
`harness.forms`: B episodes, T tokens, N turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.forms import Packed, Stop, Trajectories
from harness.identity import canonical, evidence
from harness.round import Seed, Seeds

STREAM = ("token_ids", "is_action", "logprobs", "threshold", "values")
"""Arrays of Z along T, in the order in which they are told apart at one position."""


@dataclass(frozen=True)
class Divergence:
    """The first difference: where it is, in what, and both values."""

    stage: str
    place: str
    what: str
    recorded: Any
    replayed: Any
    more: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        more = "".join(f"; {name} {value}" for name, value in self.more.items())
        return f"{self.place}: {self.what} was {self.recorded!r}, is {self.replayed!r}{more}"


def of_value(name: str, old: Packed, new: Packed, seeds: Seeds, rollout: Any) -> Divergence | None:
    """The first difference between two X, Z, F or Γ; None where there is none."""
    if name == "S":
        return of_problems(old, new, seeds)
    if name == "R":
        found = of_trajectories(old, new, seeds, rollout)  # type: ignore[arg-type]
        return found or of_entries(name, old, new)
    return of_entries(name, old, new)


def of_problems(old: Packed, new: Packed, seeds: Seeds) -> Divergence | None:
    """The first problem that is another."""
    was, now = old.meta.get("problems", []), new.meta.get("problems", [])
    for p, (a, b) in enumerate(zip(was, now, strict=False)):
        if canonical(a) != canonical(b):
            path, x, y = first_path(a, b)
            more = {"seed": path_of(seeds.task, "task", "problem", p)}
            return Divergence("S", f"problem {p}", path or "problem", x, y, more)
    if len(was) != len(now):
        return Divergence("S", "the batch", "problems", len(was), len(now))
    return of_entries("S", old, new)


def of_trajectories(
    old: Trajectories, new: Trajectories, seeds: Seeds, rollout: Any
) -> Divergence | None:
    """The first episode that differs, and in it the first turn and token."""
    for b in range(min(len(old.stop_B), len(new.stop_B))):
        found = [*_tokens(old, new, b), *_turns(old, new, b), *_stop(old, new, b)]
        if found:
            _, place, what, a, c, more = min(found, key=lambda item: item[0])
            p, g = divmod(b, max(old.attempts, 1))
            own = {**more, "seed": seed_of(seeds.roll, p, g, rollout, more.get("draw"))}
            own.pop("draw", None)
            where = f"episode {b} (problem {p}, attempt {g}), {place}"
            return Divergence("R", where, what, a, c, own)
    if len(old.stop_B) != len(new.stop_B):
        return Divergence("R", "the batch", "episodes", len(old.stop_B), len(new.stop_B))
    return None


Candidate = tuple[tuple[float, int], str, str, Any, Any, dict[str, Any]]


def _tokens(old: Trajectories, new: Trajectories, b: int) -> list[Candidate]:
    """The first position of an episode's tokens at which anything differs."""
    first: tuple[int, int] | None = None
    for order, name in enumerate(STREAM):
        if name not in old.arrays or name not in new.arrays:
            continue
        at = first_index(_row(old, name, b), _row(new, name, b))
        if at is not None and (first is None or (at, order) < first):
            first = (at, order)
    if first is None:
        return []
    at, order = first
    name = STREAM[order]
    values = [_value(Z, name, b, at) for Z in (old, new)]
    what = {"token_ids": "token", "logprobs": "log-probability"}.get(name, name)
    more: dict[str, Any] = {}
    if name != "logprobs":
        more["log-probabilities"] = [_value(Z, "logprobs", b, at) for Z in (old, new)]
    else:
        more["tokens"] = [_value(Z, "token_ids", b, at) for Z in (old, new)]
    actions = _row(old, "is_action", b)[: at + 1]
    if len(actions) > at and actions[at]:
        more["draw"] = int(actions[:at].sum())
    return [((at, 1), _where(old, b, at), what, values[0], values[1], more)]


def _turns(old: Trajectories, new: Trajectories, b: int) -> list[Candidate]:
    """The first turn whose action, as parsed, or whose event differs."""
    was, now = old.episodes[b]["turns"], new.episodes[b]["turns"]
    for n, (a, c) in enumerate(zip(was, now, strict=False)):
        if canonical(a) != canonical(c):
            path, x, y = first_path(a, c)
            end = _turn_ends(old, b)[n]
            return [((end, 0), f"turn {n}", path, x, y, {})]
    return []


def _stop(old: Trajectories, new: Trajectories, b: int) -> list[Candidate]:
    """Why it ended; and rewards that are not those of the events."""
    found: list[Candidate] = []
    end = float(min(len(_row(old, "token_ids", b)), len(_row(new, "token_ids", b))))
    if old.stop_B[b] != new.stop_B[b]:
        names = [Stop(int(Z.stop_B[b])).name.lower() for Z in (old, new)]
        found.append(((end, 2), "its end", "stop", names[0], names[1], {}))
    rewards = [Z.arrays["turn_rewards"][Z.arrays["turn_episode"] == b] for Z in (old, new)]
    n = first_index(*rewards)
    if n is not None:
        values = [evidence(r[n]) if n < len(r) else None for r in rewards]
        ends = _turn_ends(old, b)
        at = ends[n] if n < len(ends) else end
        found.append(((at, 0), f"turn {n}", "reward", values[0], values[1], {}))
    return found


def _row(Z: Trajectories, name: str, b: int) -> np.ndarray:
    return Z.arrays[name][Z.episode_offsets[b] : Z.episode_offsets[b + 1]]


def _value(Z: Trajectories, name: str, b: int, at: int) -> Any:
    row = _row(Z, name, b)
    return scalar(row[at]) if at < len(row) else None


def _turn_ends(Z: Trajectories, b: int) -> list[float]:
    own = Z.arrays["turn_episode"] == b
    return [float(x) for x in Z.arrays["turn_end"][own] - Z.episode_offsets[b]]


def _where(Z: Trajectories, b: int, at: int) -> str:
    """A position of an episode, in words."""
    own = Z.arrays["turn_episode"] == b
    starts = Z.arrays["turn_start"][own] - Z.episode_offsets[b]
    ends = Z.arrays["turn_end"][own] - Z.episode_offsets[b]
    for n, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if at < start:
            return f"observation before turn {n}, position {at}" if n else f"prompt, token {at}"
        if at < end:
            return f"turn {n}, token {at - start}"
    return f"after turn {len(ends) - 1}, position {at}" if len(ends) else f"prompt, token {at}"


def seed_of(roll: Seed, p: int, g: int, rollout: Any, draw: int | None) -> str:
    """The seed path of an episode, and of a draw in it."""
    pairs = getattr(rollout, "antithetic", False)
    own = path_of(roll, "roll", "episode", p, g - g % 2 if pairs else g)
    if draw is None:
        return f"{own}.environment"
    reflected = ", reflected" if pairs and g % 2 else ""
    return f"{own}.policy draw {draw}{reflected}"


def path_of(seed: Seed, part: str, *path: str | int) -> str:
    """A seed path as people read it."""
    return f"ω_{part}[{seed.hex[:8]}…]" + "".join(f".{step}" for step in path)


def of_entries(name: str, old: Packed, new: Packed) -> Divergence | None:
    """The first entry of the first array that differs, or the first path of the metadata."""
    for array in _first_arrays(old, new):
        was, now = old.arrays.get(array), new.arrays.get(array)
        if was is None or now is None:
            there = ["there" if x is not None else "absent" for x in (was, now)]
            return Divergence(name, "the arrays", array, there[0], there[1])
        if was.shape != now.shape or was.dtype != now.dtype:
            shapes = [f"{x.dtype}{list(x.shape)}" for x in (was, now)]
            return Divergence(name, f"{array}'s shape", array, shapes[0], shapes[1])
        at = first_index(was, now)
        if at is not None:
            index = np.unravel_index(at, was.shape)
            count = int((_bits(was) != _bits(now)).sum())
            more = {"entries that differ": f"{count} of {was.size}"}
            place = _entry(old, array, [int(i) for i in index])
            return Divergence(name, place, array, scalar(was[index]), scalar(now[index]), more)
    if canonical(old.meta) != canonical(new.meta):
        path, a, c = first_path(old.meta, new.meta)
        return Divergence(name, "meta", path, a, c)
    return None


FIRST = ("rewards", "advantages", "turn_rewards")
"""Arrays that people ask for first."""


def _first_arrays(old: Packed, new: Packed) -> list[str]:
    names = {*old.arrays, *new.arrays}
    return [n for n in FIRST if n in names] + sorted(names - set(FIRST))


def _entry(form: Packed, array: str, index: list[int]) -> str:
    """An entry of F or Γ, in words."""
    offsets = form.arrays.get("episode_offsets")
    total = None if offsets is None else int(offsets[-1])
    if (
        offsets is not None
        and form.arrays[array].shape[:1] == (total,)
        and array != "episode_offsets"
    ):
        b = int(np.searchsorted(offsets, index[0], side="right")) - 1
        return f"episode {b}, position {index[0] - int(offsets[b])}"
    if array in ("rewards", "components"):
        return f"episode {index[0]}"
    return f"turn {index[0]} of all" if array == "turn_rewards" else f"{array}{index}"


def of_cost(was: Mapping[str, str], now: Mapping[str, int]) -> Divergence | None:
    """The first dimension of the computed cost that differs."""
    for name in sorted({*was, *now}):
        a, b = was.get(name), now.get(name)
        if a != (None if b is None else str(b)):
            return Divergence("A", f"cost {name}", name, None if a is None else int(a), b)
    return None


def of_update(recorded: Any, proposal: Any) -> Divergence | None:
    """What of an update differs: a metric, a count, a gate, the decision; and the first tensor."""
    report, sealed = proposal.report, recorded.sealed
    metrics = {k: evidence(v) for k, v in report["metrics"].items()}
    moved = [
        ("metric " + k, sealed["metrics"].get(k), v)
        for k, v in metrics.items()
        if sealed["metrics"].get(k) != v
    ]
    old = {k: v for k, v in sealed["report"].items() if k != "gates"}
    moved += [("count " + k, old[k], report.get(k)) for k in old if report.get(k) != old[k]]
    more: dict[str, Any] = {}
    tensor = first_tensor(recorded.session.store, recorded.exact["proposed"], proposal.state)
    if tensor:
        more["tensor"] = tensor
    if moved:
        more["metrics that differ"] = [name.split(" ", 1)[1] for name, *_ in moved]
    was, now = recorded.exact["d"], proposal.decision.value
    if was != now:
        gates = [_verdicts(r["gates"]) for r in (sealed["report"], report)]
        if not moved and not tensor:
            return Divergence("U", "the gates", "verdicts", gates[0], gates[1], {"decision": now})
        more["decision"] = [was, now]
    if moved:
        name, a, b = moved[0]
        return Divergence("U", name, name.split(" ", 1)[1], a, b, more)
    own = proposal.state.exact()
    kind = "model" if own["model"] != recorded.exact["proposed"]["model"] else "optimizer"
    return Divergence(
        "U", f"the proposed {kind}", "identifier", recorded.exact["proposed"][kind], own[kind], more
    )


def _verdicts(gates: Any) -> dict[str, bool]:
    return {gate["name"]: gate["passed"] for gate in gates}


def first_tensor(store: Any, ids: Mapping[str, str], state: Any) -> str:
    """The first tensor that is not as recorded, by how much; that it is not stored; or nothing.

    Of the optimizer state first: its moments are the gradient's.
    """
    absent = False
    for kind in ("optimizer", "model"):
        own = getattr(state, kind)
        if own.id == ids[kind]:
            continue
        if not store.has(kind, ids[kind]):
            absent = True
            continue
        old, new = store.get(kind, ids[kind]).tensors, own.tensors
        for name in sorted({*old, *new}):
            if name not in old or name not in new:
                return f"{kind} {name} is only in one of them"
            a, b = old[name].detach().cpu(), new[name].detach().cpu()
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{kind} {name} is {b.dtype}{list(b.shape)}, was {a.dtype}{list(a.shape)}"
            if not bool((a == b).all()):
                gap, count = float((a.double() - b.double()).abs().max()), int((a != b).sum())
                return f"{kind} {name}: {count} of {a.numel()} entries, by up to {gap:.3g}"
    return "the recorded tensors are not stored, so that only identifiers are compared" * absent


def first_index(a: np.ndarray, b: np.ndarray) -> int | None:
    """The first flat index at which two arrays differ in their bits, or the shorter one ends."""
    x, y = _bits(a), _bits(b)
    size = min(len(x), len(y))
    different = np.flatnonzero(x[:size] != y[:size])
    if len(different):
        return int(different[0])
    return None if len(x) == len(y) else size


def _bits(array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.kind == "f" else flat


def scalar(value: Any) -> Any:
    """A number of an array as JSON holds it."""
    item = value.item() if hasattr(value, "item") else value
    return evidence(item) if isinstance(item, float) else item


def first_path(a: Any, b: Any, path: str = "") -> tuple[str, Any, Any]:
    """The first path at which two JSON values differ, and what is there."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in [*a, *(k for k in b if k not in a)]:
            if key not in a or key not in b or canonical(a[key]) != canonical(b[key]):
                own = f"{path}.{key}" if path else str(key)
                return first_path(a.get(key), b.get(key), own)
    if isinstance(a, list) and isinstance(b, list):
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            if canonical(x) != canonical(y):
                return first_path(x, y, f"{path}[{i}]")
        return f"{path} (length)", len(a), len(b)
    return path, a, b
