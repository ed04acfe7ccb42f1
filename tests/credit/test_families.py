"""What holds for every map of credit: it follows its episodes, reads no luck, writes nothing."""

import copy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.credit.best_of import BestOf
from harness.credit.dr_grpo import DrGRPO
from harness.credit.gae import GAE
from harness.credit.gigpo import GiGPO
from harness.credit.group import Group
from harness.credit.kl_in_reward import KLInReward
from harness.credit.maxrl import MaxRL
from harness.credit.pairs import Pairs
from harness.credit.reinforce import Reinforce
from harness.credit.reinforce_pp import ReinforcePP
from harness.credit.rloo import RLOO
from harness.credit.turn import Turn
from harness.credit.vtrace import VTrace
from harness.forms import Trajectories
from harness.identity import Version
from harness.round import Seed

MAPS = [
    Group(), Group(baseline="leave_one_out", scale="batch"), Group(scale="others"), DrGRPO(),
    RLOO(), MaxRL(), Reinforce(gamma=0.9), Reinforce(gamma=0.9, discount="token", baseline="group"),
    ReinforcePP(gamma=0.9), ReinforcePP(baseline="group"), GAE(gamma=0.9, lam=0.8),
    GAE(lam=0.8, observations="zero"), GAE(lam=0.8, observations="none"),
    VTrace(gamma=0.9, lam=0.8), Turn(), Turn(gamma=0.5, compare="group"), Turn(compare="batch"),
    GiGPO(), KLInReward(ReinforcePP(), coef=0.1), KLInReward(RLOO(), coef=0.1, kind="k3"), Pairs(),
    Pairs(select="all"), BestOf(), BestOf(keep=2, threshold=0.5),
]  # fmt: skip
"""Every map, and settings of it that take another way through it."""

P, G = 3, 4
MASKS = [[0, 1, 1, 0, 1], [0, 1], [0, 1, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 1]] * P
rng = np.random.default_rng(7)
REWARDS = rng.permutation(P * G) / 4.0
SIZE = sum(map(len, MASKS))
TOKENS = {name: rng.normal(-1, 0.5, SIZE).astype("f4") for name in ("values", "ref_logprobs")}
TOKENS["target_logprobs"] = rng.normal(-1, 0.5, SIZE).astype("f4")


def inputs(batch, order, rewards=REWARDS):
    """The episodes in another order, with everything that belongs to them."""
    starts = np.cumsum([0, *map(len, MASKS)])
    turns = [
        (b, k) for b, mask in enumerate(MASKS) for k in range("".join(map(str, mask)).count("01"))
    ]
    step = {turn: ((turn[0] * 7 + turn[1] * 3) % 5) / 8 for turn in turns}
    at = np.concatenate([np.arange(starts[b], starts[b + 1]) for b in order])
    mine = [turn for b in order for turn in turns if turn[0] == b]
    return batch(
        [rewards[b] for b in order],
        G,
        masks=[MASKS[b] for b in order],
        turn_rewards=[step[turn] for turn in mine],
        states=["start" if k == 0 else f"door {b % 2}" for b, k in mine],
        **{name: values[at] for name, values in TOKENS.items()},
    )


def per_episode(lesson):
    offsets = lesson.arrays["episode_offsets"]
    return [lesson.advantages_T[s:e] for s, e in pairwise(offsets)]


def orders():
    """Attempts permuted within their groups, and whole groups permuted."""
    attempts = np.concatenate([p * G + rng.permutation(G) for p in range(P)])
    groups = np.concatenate([p * G + np.arange(G) for p in (2, 0, 1)])
    return [attempts.tolist(), groups.tolist()]


@pytest.mark.parametrize("hole", [False, True], ids=["scored", "with a hole"])
@pytest.mark.parametrize("credit", MAPS, ids=lambda c: Version.of(c).name)
def test_credit_follows_its_episode_wherever_it_is_packed(batch, credit, hole):
    rewards = REWARDS.copy()
    if hole:
        rewards[5] = np.nan
    straight = credit(*inputs(batch, range(P * G), rewards))
    assert straight.advantages_T.any()
    for order in orders():
        moved = credit(*inputs(batch, order, rewards))
        for place, b in enumerate(order):
            expected = per_episode(straight)[b]
            assert_allclose(per_episode(moved)[place], expected, rtol=2e-6, atol=1e-6)
        there = sorted([order[i], order[j]] for i, j in moved.meta["pairs"])
        assert there == sorted(straight.meta["pairs"])
    if hole:
        assert straight.meta["unscorable"] == [5]
        assert not per_episode(straight)[5].any()


@pytest.mark.parametrize("credit", MAPS, ids=lambda c: Version.of(c).name)
def test_a_map_writes_into_none_of_its_inputs_and_reads_no_luck(batch, credit):
    X, Z, F, seed = inputs(batch, range(P * G))
    before = copy.deepcopy((X.meta, Z.meta, F.meta)), {n: a.copy() for n, a in Z.arrays.items()}
    first, second = credit(X, Z, F, seed), credit(X, Z, F, Seed("f" * 32))
    assert first.id == second.id
    assert (X.meta, Z.meta, F.meta) == before[0]
    assert all((Z.arrays[name] == array).all() for name, array in before[1].items())


@pytest.mark.parametrize("credit", MAPS, ids=lambda c: Version.of(c).name)
def test_a_lesson_has_float32_credit_on_actions_alone(batch, credit):
    X, Z, F, seed = inputs(batch, range(P * G))
    lesson = credit(X, Z, F, seed)
    assert lesson.advantages_T.dtype == np.float32
    assert not lesson.advantages_T[~Z.is_action_T].any()
    assert {"token_ids", "is_action", "episode_offsets", "logprobs"} <= lesson.arrays.keys()
    assert lesson.meta["use"] in ("policy", "supervised", "pairs")
    assert (lesson.meta["problems"], lesson.meta["attempts"]) == (P, G)


@pytest.mark.parametrize("credit", MAPS, ids=lambda c: Version.of(c).name)
def test_episodes_without_any_action_are_no_trouble(batch, credit):
    X, Z, F, seed = batch([1.0, 0.0], 2, masks=[[0, 0], [0]], turn_rewards=[])
    extra = {name: values[:3] for name, values in TOKENS.items()}
    lesson = credit(X, Trajectories(Z.meta, {**Z.arrays, **extra}), F, seed)
    assert lesson.advantages_T.tolist() == [0, 0, 0]


def test_every_module_of_the_family_that_is_a_map_has_a_configuration():
    root = Path(__file__).parents[2]
    named = {file.stem for file in (root / "conf" / "credit").glob("*.yaml")}
    assert {Version.of(credit).name for credit in MAPS} == {f"credit.{name}@1" for name in named}
