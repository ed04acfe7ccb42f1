"""R against the exact law of a policy with an environment.

    P(z | x) = Π_t π(a_t | x, a_<t, o_<t)        over all stopped trajectories z

π from a float64 copy of the module, by one forward of each whole history: no cache, no engine, and
the truncated family by its definition. The environment must be a function of the problem and the
actions. Beside the counts of trajectories, a score that a wrong temperature moves,

    Z = Σ_t (ln π(a_t) − E ln π) / √(Σ_t Var ln π)

and the law of the first tokens of two attempts: a product, or, with reflected luck, a coupling.

Axes: M histories, V vocabulary, B episodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.forms import Instance, Stop, Trajectories
from harness.laws.statistics import Check, exact, g_test, shift, z_test
from harness.round import Seed

FAMILY = "R"
LIMIT = 8192
"""Histories whose next token's law is computed."""
ROWS = 512
"""Histories that are forwarded together."""
Path = tuple[int, ...]
"""Sampled tokens of an episode, turns joined: what was shown between them follows from it."""


@dataclass(frozen=True)
class History:
    """An episode that has not stopped."""

    path: Path
    p: float
    tokens: tuple[int, ...]
    turn: tuple[int, ...]
    turns: int
    rewards: tuple[float, ...]
    state: Any


@dataclass
class Law:
    """The law of one problem's episodes: a partition of all trajectories with its probabilities."""

    cells: dict[Any, float] = field(default_factory=dict)
    """(path, stop, rewards), or (path, "…") for all that go on from a path."""
    pools: dict[Any, Any] = field(default_factory=dict)
    nexts: dict[Path, np.ndarray] = field(default_factory=dict)
    """ln π(· | history), by its path; −∞ where a token is not kept."""

    def cell(self, path: Path, stop: str, rewards: tuple[float, ...]) -> Any:
        """The cell of an episode; one that is not in the partition has no probability."""
        for n in range(1, len(path)):
            if (path[:n], "…") in self.cells:
                return (path[:n], "…")
        whole = (path, "…")
        return whole if whole in self.cells else (path, stop, rewards)


def law_of(policy: Any, environment: Any, problem: Any, limit: int = LIMIT) -> Law:
    """Enumerate: the most probable histories first, the others as one cell each."""
    law, logits_of = Law(), Exact(policy)
    state, messages = environment.reset(problem, Seed("0" * 32))
    prompt = tuple(policy.begin(messages, environment.tools))
    live = [History((), 1.0, prompt, (), 0, (), state)]
    while live:
        live.sort(key=lambda h: -h.p)
        kept = live[: max(limit - len(law.nexts), 0)]
        for h in live[len(kept) :]:
            law.cells[h.path, "…"] = h.p
            law.pools[h.path, "…"] = ("…", len(h.path))
        live = []
        for h, logp_V in zip(kept, logits_of(kept), strict=True):
            law.nexts[h.path] = logp_V
            for token in np.flatnonzero(np.isfinite(logp_V)):
                after = _after(policy, environment, h, int(token), math.exp(logp_V[token]))
                if isinstance(after, History):
                    live.append(after)
                else:
                    cell, p = after
                    law.cells[cell] = p
                    law.pools[cell] = (len(cell[0]), *cell[1:])
    return law


def _after(
    policy: Any, environment: Any, h: History, token: int, p: float
) -> History | tuple[Any, float]:
    """What a token makes of a history: one that goes on, or the cell of a stopped episode."""
    limits, path = policy.inference, (*h.path, token)
    tokens, turn, mass = (*h.tokens, token), (*h.turn, token), h.p * p
    spent = len(path) >= limits.max_episode_tokens
    full = len(tokens) >= limits.context
    if token not in policy.stops and len(turn) < limits.max_turn_tokens and not (spent or full):
        return History(path, mass, tokens, turn, h.turns, h.rewards, h.state)
    state, event = environment.step(h.state, policy.parse(list(turn)))
    rewards, turns = (*h.rewards, float(event.reward)), h.turns + 1
    stop = None
    shown: Sequence[int] = ()
    if event.done:
        stop = Stop.TERMINATED if event.stop is None else event.stop
    elif turns >= limits.max_turns:
        stop = Stop.TURN_BUDGET
    elif spent:
        stop = Stop.TOKEN_BUDGET
    else:
        shown = policy.extend(list(turn), event.messages)
        if len(tokens) + len(shown) + 1 > limits.context:
            stop = Stop.CONTEXT_FULL
    if stop is not None:
        return (path, stop.name, rewards), mass
    return History(path, mass, (*tokens, *shown), (), turns, rewards, state)


class Exact:
    """ln π(· | history) in float64, by whole forwards of a copy of the module."""

    def __init__(self, policy: Any) -> None:
        from harness.policies.model import build_module

        # the critic's tensors, where a model has one, are not the module's
        self.module = build_module(policy.model, attention="eager").double()
        self.inference = policy.inference

    def __call__(self, histories: Sequence[History]) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        for start in range(0, len(histories), ROWS):
            part = histories[start : start + ROWS]
            found += list(family(self._logits([h.tokens for h in part]), self.inference))
        return found

    def _logits(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        import torch

        width = max(len(row) for row in rows)
        # padded at the right: a causal model's earlier positions do not see it
        ids = torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows])
        last = torch.tensor([len(row) - 1 for row in rows])
        with torch.no_grad():
            logits = self.module(input_ids=ids).logits
        values: np.ndarray = logits[torch.arange(len(rows)), last].double().numpy()
        return values


def family(logits_MV: np.ndarray, inference: Any) -> np.ndarray:
    """ln of the tempered, truncated, renormalised softmax; −∞ outside of the kept set."""
    x = logits_MV / inference.temperature
    d = x - x.max(1, keepdims=True)
    mass = np.exp(d)
    kept = np.ones_like(d, bool)
    if 0 < inference.top_k < d.shape[1]:
        kept &= d >= np.sort(d, 1)[:, -inference.top_k][:, None]
    if inference.top_p < 1:
        ranked = np.sort(d, 1)[:, ::-1]
        running = np.exp(ranked).cumsum(1)
        short = (running < inference.top_p * running[:, -1:]).sum(1)
        kept &= d >= np.take_along_axis(ranked, short[:, None], 1)
    if inference.min_p > 0:
        kept &= mass >= inference.min_p
    with np.errstate(divide="ignore"):
        return np.where(kept, d, -np.inf) - np.log((mass * kept).sum(1, keepdims=True))


# ---- episodes against it


def checks(
    rollout: Any, policy: Any, environment: Any, problem: Any, seeds: Sequence[Seed],
    *, name: str, level: float, law: Law | None = None,
) -> list[Check]:  # fmt: skip
    """Episodes of one problem, `rollout.attempts` under each seed, against the exact law.

    law: that of these inputs, where it is at hand.
    """
    law = law or law_of(policy, environment, problem)
    pairs = getattr(rollout, "antithetic", False)
    roll = rollout(policy, environment)
    Zs = [roll(Instance({"problems": [problem]}), seed) for seed in seeds]
    paths = [path for Z in Zs for path in paths_of(Z)]
    # reflected pairs are dependent: one of each keeps the observations independent
    own = [path for i, path in enumerate(paths) if not pairs or (i % 2) == (i // 2 % 2)]
    seen = Counter(law.cell(*path) for path in own)
    found = [g_test(FAMILY, f"{name}: trajectories", seen, law.cells, law.pools, level=level)]
    found.append(_score(law, own, name, level))
    found.append(_recorded(law, Zs, paths, policy, name))
    if not policy.inference.truncated:
        found.append(_pairs(law, paths, pairs, name, level))
    return found


def paths_of(Z: Trajectories) -> list[tuple[Path, str, tuple[float, ...]]]:
    """Of each episode: its sampled tokens, why it stopped, and its rewards."""
    found = []
    rewards: list[list[float]] = [[] for _ in Z.stop_B]
    for b, reward in zip(Z.arrays["turn_episode"], Z.arrays["turn_rewards"], strict=True):
        rewards[b].append(float(reward))
    for b, (start, end) in enumerate(zip(Z.episode_offsets, Z.episode_offsets[1:], strict=False)):
        sampled = Z.token_ids_T[start:end][Z.is_action_T[start:end]]
        stop = Stop(int(Z.stop_B[b])).name
        found.append((tuple(int(t) for t in sampled), stop, tuple(rewards[b])))
    return found


def _score(law: Law, paths: Sequence[Any], name: str, level: float) -> Check:
    """The mean of ln π of what was sampled, against its own law."""
    moments = {path: _moments(logp_V) for path, logp_V in law.nexts.items()}
    total = variance = 0.0
    size = 0
    for path, *_ in paths:
        for n, token in enumerate(path):
            at = law.nexts.get(path[:n])
            if at is None or not math.isfinite(logp := float(at[token])):
                break
            mean, var = moments[path[:n]]
            total, variance, size = total + logp - mean, variance + var, size + 1
    if variance == 0:
        return exact(FAMILY, f"{name}: temperature", True, size, "no choice to make")
    finds = f"a temperature off by {shift(level) / math.sqrt(variance):.1%}"
    return z_test(FAMILY, f"{name}: temperature", total / math.sqrt(variance), size, finds)


def _moments(logp_V: np.ndarray) -> tuple[float, float]:
    kept = logp_V[np.isfinite(logp_V)]
    p = np.exp(kept)
    mean = float((p * kept).sum())
    return mean, float((p * kept**2).sum()) - mean**2


TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
"""By how much a recorded log-probability may miss the exact one, by the engine's dtype."""


def _recorded(
    law: Law, Zs: Sequence[Trajectories], paths: Sequence[Any], policy: Any, name: str
) -> Check:
    """The log-probabilities that Z records are those of the law that was sampled from."""
    recorded = np.concatenate([Z.logprobs_T[Z.is_action_T] for Z in Zs]).astype(np.float64)
    worst, i = 0.0, 0
    for path, *_ in paths:
        for n, token in enumerate(path):
            if (at := law.nexts.get(path[:n])) is not None:
                worst = max(worst, abs(float(at[token]) - recorded[i]))
            i += 1
    dtype = str(next(iter(policy.model.tensors.values())).dtype).removeprefix("torch.")
    good = worst <= TOLERANCE.get(dtype, 1e-4)
    text = f"largest error {worst:.1e}"
    return exact(FAMILY, f"{name}: recorded log-probabilities", good, i, text)


def _pairs(law: Law, paths: Sequence[Any], reflected: bool, name: str, level: float) -> Check:
    """First tokens of attempts 2i and 2i+1: independent, or with u and 1 - u."""
    p_V = np.exp(law.nexts[()])
    joint = coupling(p_V) if reflected else np.outer(p_V, p_V)
    cells = {(v, w): float(joint[v, w]) for v in range(len(p_V)) for w in range(len(p_V))}
    firsts = [path[0] for path, *_ in paths]
    seen = Counter(zip(firsts[::2], firsts[1::2], strict=False))
    # 1 - u touches the grid's other end: an interval of no width may be hit by rounding
    if reflected:
        cells = {pair: max(p, 1e-12) for pair, p in cells.items()}
    what = "reflected pairs" if reflected else "attempts are independent"
    pools = {pair: pair[0] for pair in cells}
    return g_test(FAMILY, f"{name}: {what}", seen, cells, pools, level=level)


def coupling(p_V: np.ndarray) -> np.ndarray:
    """P(v, w) where v is at u and w at 1 - u of the same running sum."""
    edges = np.concatenate([[0.0], np.cumsum(p_V)])
    edges[-1] = 1.0
    low, high = edges[:-1], edges[1:]
    overlap = np.minimum(high[:, None], 1 - low[None, :]) - np.maximum(
        low[:, None], 1 - high[None, :]
    )
    joint: np.ndarray = np.maximum(overlap, 0.0)
    return joint
