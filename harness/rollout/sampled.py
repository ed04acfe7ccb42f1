"""Turn-taking rollout: G attempts at each of P problems, all live episodes together.

    Z = (z_{p,g}),   z_{p,g} = episode(x_p; fold(ω_roll, "episode", p, g))

Episode (p, g) samples with the key fold(·, "policy") and its environment draws from
fold(·, "environment"): given X, episodes are independent, and each is a function of its own seeds.
Ranks each roll out whole problems, in order, and every rank gets the whole Z. Z is the same for any
number of ranks where the engine's decode batches are: where `inference.decode_rows` divides the
episodes of every rank, and `prefill_rows` the prompts of each batch.
With `antithetic`, attempts 2i and 2i+1 share a key, and the odd one reflects it (u to 1 - u): then
only the marginal law of an episode is claimed.

A model with a critic gives the value of the state that each token is sampled in, and a `reference`
scores every episode when all have stopped.

What a policy does wrong, and a tool that fails, end or mark an episode: they are data.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from harness.forms import Instance, Stop, Trajectories
from harness.round import Seed
from harness.watchdog import check_seconds
from harness.work import seen
from harness.world import ALONE, World

from .answer import answer, opening
from .episode import Episode


def nothing(*_: Any) -> None:
    """Where nobody is told."""


@dataclass(frozen=True)
class Sampled:
    """R: attempts at each problem, until each stops."""

    version: ClassVar[str] = "1"
    attempts: int = 8
    """G, attempts at each problem."""
    antithetic: bool = False
    """Reflect the luck of every odd attempt; the law `seeds=antithetic` sets it."""
    reference: Any = field(default=None, metadata={"identity": "unless default"})
    """A frozen policy whose log-probabilities are recorded too; null: none."""
    timeout: float | None = field(default=None, metadata={"identity": "unless default"})
    """Seconds that the environment may take for an answer; null: as long as it wants. Where this
    fires the round is open: it says so in `exogenous`."""
    progress: Callable[..., None] = field(
        default=nothing, metadata={"identity": False}, compare=False
    )
    """Told of work before it is done: its dimension of the cost, how much, and how many tokens its
    tokens attend to. It may refuse by an exception, and then the round is none."""
    world: World = field(default=ALONE, metadata={"identity": False}, compare=False)
    """The ranks that roll out together."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"rollout.attempts is {self.attempts}; it is at least 1")
        check_seconds("rollout.timeout", self.timeout)

    def __call__(self, policy: Any, environment: Any) -> Callable[[Instance, Seed], Trajectories]:
        return lambda X, seed: self._roll(policy, environment, X, seed)

    def _roll(self, policy: Any, environment: Any, X: Instance, seed: Seed) -> Trajectories:
        world = self.world
        ranks = getattr(policy.inference, "ranks", 1)
        if ranks != world.size:
            raise ValueError(
                f"this rollout is that of {ranks} ranks, and {world.size} are running; give "
                f"ranks={ranks}"
            )
        others = () if self.reference is None else (self.reference.scorer.model,)
        world.call("R", artifacts=(policy.model, *others), value=X, seed=seed.hex)
        with getattr(policy, "whole", nullcontext)():
            part = self._part(policy, environment, X, seed, world.share(len(X.problems)))
        Z = joined(world.gather(part))
        if self.reference is not None:
            scorer, lengths = self.reference.scorer, np.diff(Z.episode_offsets)
            attended = int((lengths * (lengths + 1) // 2).sum())
            self.progress("flops/reference", int(lengths.sum()), attended, scorer)
            Z = self.reference.record(Z, world)
        world.agree("trajectories", Z.id)
        return Z

    def _part(
        self, policy: Any, environment: Any, X: Instance, seed: Seed, problems: range
    ) -> Trajectories:
        """The episodes of some of the problems."""
        episodes = [
            self._episode(policy, environment, X.problems[p], p, g, seed)
            for p in problems
            for g in range(self.attempts)
        ]
        for _, prompt in {(e.problem, tuple(e.prompt)) for e in episodes}:
            self.progress("tokens/prompt", len(prompt), seen(0, len(prompt)))
        live = [e for e in episodes if e.stop is None]
        size = policy.inference.decode_rows or max(len(live), 1)
        for start in range(0, len(live), size):
            self._run(policy, environment, live[start : start + size])
        return self._pack(policy, episodes, len(problems))

    def _episode(
        self, policy: Any, environment: Any, problem: Any, p: int, g: int, seed: Seed
    ) -> Episode:
        luck = seed.fold("episode", p, g - g % 2 if self.antithetic else g)
        own = seed.fold("episode", p, g)
        state, messages, failure, stop = opening(
            environment, problem, own.fold("environment"), self.timeout
        )
        prompt = [] if failure else policy.begin(messages, environment.tools)
        episode = Episode(p, luck.fold("policy").key, self.antithetic and g % 2 == 1, state, prompt)
        episode.show(prompt)
        if failure:
            episode.failure, episode.stop = failure, stop
        elif len(prompt) + 1 > policy.inference.context:
            episode.stop = Stop.CONTEXT_FULL
        return episode

    def _run(self, policy: Any, environment: Any, live: list[Episode]) -> None:
        """Decode until every episode has stopped: a turn of all, the environments, and so on."""
        prompts = list(dict.fromkeys(tuple(e.prompt) for e in live))
        index = {prompt: i for i, prompt in enumerate(prompts)}
        session = policy.open([list(x) for x in prompts], [index[tuple(e.prompt)] for e in live])
        while live:
            self._turn(policy, session, live)
            for episode in live:
                self._answer(policy, environment, episode)
            kept = [i for i, e in enumerate(live) if e.stop is None]
            live = [live[i] for i in kept]
            if not live:
                return
            session.select(kept)
            session.feed([e.pending for e in live])
            for episode in live:
                episode.pending = []

    def _turn(self, policy: Any, session: Any, live: list[Episode]) -> None:
        """One turn of every live episode: sample until a stop token or a budget ends it."""
        limits, stops = policy.inference, set(policy.stops)
        critic = getattr(policy, "critic", False)
        acting = list(range(len(live)))
        while True:
            chosen = [live[i] for i in acting]
            places = sum(len(e.tokens) + 1 for e in chosen)
            self.progress("tokens/sampled", len(acting), places)
            tokens, logprobs, thresholds = session.sample(
                acting, [e.key for e in chosen], [e.sampled for e in chosen],
                [e.reflected for e in chosen] if self.antithetic else None,
            )  # fmt: skip
            values = session.values(acting) if critic else [0.0] * len(acting)
            for e, *sampled in zip(chosen, tokens, logprobs, thresholds, values, strict=True):
                e.act(*sampled)
            acting = [
                i for i in acting
                if live[i].tokens[-1] not in stops
                and len(live[i].turn_tokens) < limits.max_turn_tokens
                and live[i].sampled < limits.max_episode_tokens
                and len(live[i].tokens) < limits.context
            ]  # fmt: skip
            if not acting:
                return
            going = set(acting)
            session.feed([e.pending if i in going else [] for i, e in enumerate(live)])
            for i in acting:
                live[i].pending = []

    def _answer(self, policy: Any, environment: Any, e: Episode) -> None:
        """Let the environment answer a turn, and stop the episode or show it the answer."""
        limits, ids = policy.inference, e.turn_tokens
        action = policy.parse(ids)
        self.progress("environment/steps", 1)
        self.progress("tool/calls", len(action.calls))
        e.state, event, said = answer(environment, e.state, action, self.timeout)
        e.spans.append((e.turn_start, len(e.tokens)))
        e.rewards.append(event.reward)
        e.turns.append(said)
        if event.done:
            e.stop = Stop.TERMINATED if event.stop is None else event.stop
        elif len(e.turns) >= limits.max_turns:
            e.stop = Stop.TURN_BUDGET
        elif e.sampled >= limits.max_episode_tokens:
            e.stop = Stop.TOKEN_BUDGET
        else:
            shown = policy.extend(ids, event.messages)
            if len(e.tokens) + len(shown) + 1 > limits.context:
                e.stop = Stop.CONTEXT_FULL
            else:
                before, after = len(e.tokens), len(e.tokens) + len(shown)
                self.progress("tokens/observed", len(shown), seen(before, after))
                e.show(shown)
                e.pending = [*e.pending, *shown]

    def _pack(self, policy: Any, episodes: list[Episode], problems: int) -> Trajectories:
        lengths = [len(e.tokens) for e in episodes]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        spans = [(b, *span) for b, e in enumerate(episodes) for span in e.spans]
        starts = [int(offsets[b]) + start for b, start, _ in spans]
        ends = [int(offsets[b]) + end for b, _, end in spans]
        arrays = {
            "token_ids": np.array([t for e in episodes for t in e.tokens], np.int32),
            "is_action": np.array([a for e in episodes for a in e.action], bool),
            "logprobs": np.array([x for e in episodes for x in e.logprobs], np.float32),
            "episode_offsets": offsets,
            "stop": np.array([e.stop for e in episodes], np.uint8),
            "turn_episode": np.array([b for b, _, _ in spans], np.int32),
            "turn_start": np.array(starts, np.int64),
            "turn_end": np.array(ends, np.int64),
            "turn_rewards": np.array([r for e in episodes for r in e.rewards], np.float64),
        }
        if policy.inference.truncated:
            thresholds = [x for e in episodes for x in e.thresholds]
            arrays["threshold"] = np.array(thresholds, np.float32)
        if getattr(policy, "critic", False):
            arrays["values"] = np.array([x for e in episodes for x in e.values], np.float32)
        meta = {
            "problems": problems, "attempts": self.attempts,
            "sampling": policy.inference.sampling, "exogenous": [
                {"problem": e.problem, "attempt": b % self.attempts, "turn": len(e.turns) - 1,
                 "read": "time-out"}
                for b, e in enumerate(episodes) if e.stop == Stop.TIMEOUT
            ],
            "episodes": [
                {"turns": e.turns, **({"failure": e.failure} if e.failure else {})}
                for e in episodes
            ],
        }  # fmt: skip
        return Trajectories(meta, arrays)


def joined(parts: list[Trajectories]) -> Trajectories:
    """Parts of a batch, in order, as one: what counts tokens or episodes is moved along."""
    if len(parts) == 1:
        return parts[0]
    arrays = {name: [part.arrays[name] for part in parts] for name in parts[0].arrays}
    tokens = np.cumsum([0, *(len(part.token_ids_T) for part in parts)])
    episodes = np.cumsum([0, *(len(part.stop_B) for part in parts)])
    moves = {"episode_offsets": tokens, "turn_start": tokens, "turn_end": tokens,
             "turn_episode": episodes}  # fmt: skip
    for name, by in moves.items():
        moved = zip(arrays[name], by[:-1], strict=True)
        arrays[name] = [(a + n).astype(a.dtype) for a, n in moved]
    offsets = arrays["episode_offsets"]
    arrays["episode_offsets"] = [offsets[0], *(part[1:] for part in offsets[1:])]
    meta = {
        **parts[0].meta, "problems": sum(part.problems for part in parts),
        "exogenous": [x for part in parts for x in part.meta["exogenous"]],
        "episodes": [e for part in parts for e in part.episodes],
    }  # fmt: skip
    return Trajectories(meta, {name: np.concatenate(each) for name, each in arrays.items()})
