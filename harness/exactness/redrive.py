"""Could these episodes have happened, and do they happen again?

`admits`: z lies in Z_T, the trajectories that some seed could have produced: every turn is one that
the environment could have answered, and every episode stopped, for the reason that it names.
`episodes`: the environment, driven again with the recorded actions under the recorded seed, gives
the recorded observations, rewards and stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from harness.environments.turns import as_action, stop_of
from harness.exactness.divergence import first_path
from harness.forms import Instance, Stop, Trajectories
from harness.identity import canonical
from harness.rollout.answer import answer, opening
from harness.round import Seed

LIMITS = (Stop.TURN_BUDGET, Stop.TOKEN_BUDGET, Stop.CONTEXT_FULL)
"""Why R itself may end an episode that the environment would let go on."""


def sample_of(count: int, size: int, key: str) -> list[int]:
    """`size` of `count` rows, chosen by a key; all of them where there are no more."""
    if count <= size:
        return list(range(count))
    seed = Seed("0" * 32).fold("sample", key)
    return sorted(sorted(range(count), key=lambda b: seed.fold(b).hex)[:size])


def admits(environment: Any, X: Instance, Z: Trajectories, rows: Iterable[int]) -> Iterator[str]:
    """One sentence for each of these episodes that no seed could have produced."""
    for b in rows:
        turns = Z.episodes[b]["turns"]
        why = _stopped(Z, b, turns)
        if why is None:
            # the end that a failure or the watchdog made is no answer of the environment
            cut = Z.stop_B[b] in (Stop.TOOL_FAILURE, Stop.TIMEOUT)
            answered = turns[:-1] if cut else turns
            why = environment.admits(X.problems[b // max(Z.attempts, 1)], answered)
        if why is not None:
            yield f"episode {b}: {why}"


def _stopped(Z: Trajectories, b: int, turns: Sequence[Mapping[str, Any]]) -> str | None:
    """Why an episode's end is none; None where it is one."""
    stop = Stop(int(Z.stop_B[b]))
    own = Z.arrays["turn_episode"] == b
    rewards = Z.arrays["turn_rewards"][own]
    if len(rewards) != len(turns):
        return f"{len(rewards)} turns have rewards, but {len(turns)} are recorded"
    for n, (reward, turn) in enumerate(zip(rewards, turns, strict=True)):
        if reward != turn["event"]["reward"]:
            return f"turn {n} is rewarded {reward}, but its event says {turn['event']['reward']}"
        if turn["event"]["done"] and n + 1 < len(turns):
            return f"it goes on after turn {n}, which ended it"
    ended = stop_of(turns[-1]) if turns else None
    if ended is not None and ended != stop:
        return f"it stopped as {stop.name.lower()}, but its last turn says {ended.name.lower()}"
    if ended is None and stop not in LIMITS and not Z.episodes[b].get("failure"):
        return f"it stopped as {stop.name.lower()}, but its last turn does not end it"
    return None


def episodes(
    environment: Any, X: Instance, Z: Trajectories, roll: Seed, rows: Iterable[int]
) -> Iterator[str]:
    """One sentence for each of these episodes that does not happen again."""
    for b in rows:
        p, g = divmod(b, max(Z.attempts, 1))
        seed = roll.fold("episode", p, g).fold("environment")
        turns = Z.episodes[b]["turns"]
        failure = Z.episodes[b].get("failure", "")
        why = _again(environment, X.problems[p], seed, turns, failure)
        if why is not None:
            yield f"episode {b} (problem {p}, attempt {g}): {why}"


def _again(
    environment: Any, problem: Any, seed: Seed, turns: Sequence[Mapping[str, Any]], failure: str
) -> str | None:
    state, _, failed, _ = opening(environment, problem, seed)
    if failed != failure:
        said = f"the failure {failure!r}" if failure else "a beginning"
        return f"it has {said}, but the environment gives {failed or 'a beginning'!r}"
    for n, turn in enumerate(turns):
        action = as_action(turn)
        state, event, again = answer(environment, state, action)
        if canonical(again["event"]) != canonical(turn["event"]):
            path, was, now = first_path(turn["event"], again["event"])
            return f"turn {n} has {path} {was!r}, but the environment gives {now!r}"
        if event.done and n + 1 < len(turns):
            return f"it ends after turn {n}, but {len(turns)} turns are recorded"
    return None


def findings(
    environment: Any, X: Instance, Z: Trajectories, roll: Seed, *, size: int = 0, key: str = ""
) -> list[str]:
    """What is wrong with `size` of a round's episodes, chosen by a key; 0: with any of them."""
    count = len(Z.stop_B)
    rows = list(range(count)) if not size else sample_of(count, size, key)
    if np.shape(Z.stop_B)[0] != len(Z.episodes):
        return [f"{count} episodes stopped, but {len(Z.episodes)} are recorded"]
    if Z.meta.get("exogenous"):
        # what an open round read from outside cannot be asked for again
        return list(admits(environment, X, Z, rows))
    return [*admits(environment, X, Z, rows), *episodes(environment, X, Z, roll, rows)]
