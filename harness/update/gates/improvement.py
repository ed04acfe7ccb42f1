"""The proposal does better on tasks that nobody trained on, on common random numbers.

    d_i = (R_i(M̃) − R_i(M)) / (high − low)      i: a held-out task, drawn for this round alone
    pass  iff  the hypothesis E[d] ≤ margin / (high − low) is refused at level α

R_i(M) is the mean reward of M's attempts at task i. Both models meet the same task with the same
seeds, so that what they do alike cancels. The task is the unit: tasks are independent draws of
their law, and the test (`betting`) is exact for any law of rewards in [low, high]. It looks after
every batch and stops as soon as the proposal is accepted; `tasks` is the most that it spends.

Error. In a round, given all before it: P(accept | the proposal is no better) ≤ α = level/horizon,
for every pair of models. Over a lineage: of any `horizon` rounds, one or more accepts a proposal
that is no better with chance at most `level`, and N rounds accept N·α such proposals at most in
expectation. U knows no round's number, and a rejected round leaves no trace in (M, s), so no level
is spent by index: each round is given the same.

An episode that cannot be scored counts as `low`, for both models. The evaluation is part of v_U:
its tasks, environment, inference settings and feedback; all its luck folds from ω_update. Its
tokens are in the report's `evaluation` and in the cost. It is not run where another gate has
rejected already.

Versions: 1, the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from harness.forms import Instance, Scores, Trajectories
from harness.round import Seed
from harness.update.gates import betting
from harness.update.gates.verdict import verdict
from harness.work import Work, most, work_of


class Rollout(Protocol):
    """What an evaluation needs of R: episodes of a policy in an environment."""

    attempts: int

    def __call__(
        self, policy: Any, environment: Any
    ) -> Callable[[Instance, Seed], Trajectories]: ...


class Trial(Protocol):
    """An update of which both ends can be run: the models that it began with and that it made."""

    seed: Seed

    def policy(self, proposed: bool, inference: Any) -> Any: ...

    def say(self, value: Any) -> Any:
        """What rank 0 says."""
        ...

    @property
    def leads(self) -> bool: ...


@dataclass(frozen=True)
class Improvement:
    """A paired evaluation of M̃ against M, and its test."""

    version: ClassVar[str] = "1"
    task: Any
    environment: Any
    inference: Any
    rollout: Rollout
    feedback: Callable[[Instance, Trajectories, Seed], Scores]
    part: str = "held_out"
    """held_out: what `task` keeps from training; whole: all of `task`, a law of its own."""
    tasks: int = 512
    """The most tasks of a round."""
    batch: int = 64
    """Tasks between two looks."""
    level: float = 0.05
    """Chance, at most, that any of `horizon` rounds accepts a proposal that is no better."""
    horizon: int = 1
    """Rounds that share the level."""
    margin: float = 0.0
    """Reward by which the proposal must be better; below 0, by which it may be worse."""
    range: tuple[float, float] = (0.0, 1.0)
    """The least and the largest reward that the feedback gives."""

    def __post_init__(self) -> None:
        low, high = self.range if len(self.range) == 2 else (math.nan, math.nan)
        bad = lambda name, right: ValueError(  # noqa: E731
            f"the improvement gate's {name} is {getattr(self, name)}; it is {right}"
        )
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise bad("range", "two finite numbers, the least reward and the largest")
        if not 0 < self.level < 1:
            raise bad("level", "a chance between 0 and 1")
        if not abs(self.margin) < high - low:
            raise bad("margin", f"less than the width of its range, {high - low:g}")
        for name in ("tasks", "batch", "horizon"):
            if getattr(self, name) < 1:
                raise bad(name, "at least 1")
        if self.part not in ("held_out", "whole"):
            raise bad("part", "held_out or whole")
        if self.part == "held_out" and not hasattr(self.task, "held_out"):
            raise ValueError(
                f"the improvement gate evaluates held-out tasks, but {type(self.task).__name__} "
                "keeps none from training; use task=split, or say part=whole for a task of its own"
            )
        if getattr(self.rollout, "reference", None) is not None:
            raise ValueError("the improvement gate's rollout needs no reference; set it to null")

    @property
    def alpha(self) -> float:
        """The level of a round."""
        return self.level / self.horizon

    @property
    def width(self) -> float:
        return self.range[1] - self.range[0]

    @cached_property
    def law(self) -> Any:
        """The law that tasks are drawn from."""
        return self.task.held_out() if self.part == "held_out" else self.task

    def bind(self, tokenizer: Any, world: Any) -> Improvement:
        """With the template of a tokenizer, for ranks that evaluate together."""
        inference = replace(self.inference.bind(tokenizer), ranks=world.size)
        rollout: Any = self.rollout
        return replace(self, inference=inference, rollout=replace(rollout, world=world))

    def most(self) -> dict[str, int]:
        """The most that an evaluation costs, of the dimensions that its settings bound."""
        return most(self.inference, 2 * self.tasks * self.rollout.attempts)

    def evaluate(
        self, report: Mapping[str, Any], trial: Trial, name: str, wanted: bool
    ) -> tuple[dict[str, Any], list[Work]]:  # fmt: skip
        """The verdict, and the work of every rollout; nothing is rolled out where it is not wanted,
        or where the update gave numbers that are not finite."""
        finite = all(math.isfinite(float(value)) for value in report["metrics"].values())
        rewards: list[np.ndarray] = []
        work: list[Work] = []
        while wanted and finite and (done := sum(map(len, rewards))) < self.tasks:
            ends = min(self.batch, self.tasks - done)
            pair = self._look(trial, trial.seed.fold("gate", name, len(rewards)), ends, work)
            rewards.append(pair)
            if betting.p_value(self.scaled(rewards), self.margin / self.width) <= self.alpha:
                break
        return self._verdict(rewards, work), work

    def scaled(self, rewards: list[np.ndarray]) -> np.ndarray:
        """The differences d in [-1, 1] of rewards_N2 of M and M̃."""
        pairs = np.concatenate(rewards) if rewards else np.empty((0, 2))
        return np.clip((pairs[:, 1] - pairs[:, 0]) / self.width, -1.0, 1.0)

    def _look(self, trial: Trial, seed: Seed, tasks: int, work: list[Work]) -> np.ndarray:
        """rewards_N2 of M and M̃ on as many new tasks, the same for both."""
        law = self.law
        drawn = [law.draw(seed.fold("task", i)) for i in range(tasks)]
        X, pair = Instance({"problems": drawn}), np.empty((tasks, 2))
        # the model that is there goes first
        for proposed in (True, False) if len(work) % 4 == 0 else (False, True):
            policy = trial.policy(proposed, self.inference)
            Z = self.rollout(policy, self.environment)(X, seed.fold("roll"))
            work.append(work_of(Z))
            # one rank asks the feedback, as in F
            told = self.feedback(X, Z, seed.fold("feed")).rewards_B.tolist() if trial.leads else []
            pair[:, int(proposed)] = self._by_task(np.array(trial.say(told), np.float64), tasks)
        return pair

    def _by_task(self, rewards_B: np.ndarray, tasks: int) -> np.ndarray:
        """Mean rewards by task. ValueError for one that lies outside of the declared range."""
        low, high = self.range
        rewards_B = np.where(np.isnan(rewards_B), low, rewards_B)
        outside = rewards_B[(rewards_B < low) | (rewards_B > high)]
        if len(outside):
            raise ValueError(
                f"the improvement gate's range is [{low:g}, {high:g}], but a held-out episode was "
                f"rewarded {outside[0]:g}; give a range that holds every reward"
            )
        return rewards_B.reshape(tasks, -1).mean(1)

    def _verdict(self, rewards: list[np.ndarray], work: list[Work]) -> dict[str, Any]:
        d_N, margin = self.scaled(rewards), self.margin / self.width
        p = betting.p_value(d_N, margin)
        numbers: dict[str, float] = {"tasks": len(d_N), "tokens": sum(w.tokens for w in work)}
        if rewards:
            before, after = np.concatenate(rewards).mean(0).tolist()
            bound = betting.lower_bound(d_N, self.alpha) * self.width
            numbers |= {"before": before, "after": after, "difference": after - before}
            numbers |= {"bound": bound, "p": p}
        numbers |= {"alpha": self.alpha, "level": self.level, "horizon": self.horizon}
        return verdict("improvement", p <= self.alpha, numbers)
