"""The critic's loss, by hand, by its definition, and through rounds that teach a value head."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.credit.gae import GAE
from harness.credit.vtrace import VTrace
from harness.environments.vault import Vault
from harness.forms import Scores
from harness.policies.inference import Inference
from harness.policies.model import build_module
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny
from harness.rollout.sampled import Sampled
from harness.round import Seed, State
from harness.tasks.product import Product
from harness.tasks.vault import Vault as Codes
from harness.update.objectives.gspo import GSPO
from harness.update.objectives.ppo import PPO
from harness.update.value import explained, value_loss, value_rows

SIZES = {"hidden": 32, "heads": 2, "intermediate": 64, "scale": 0.3}
HEAD = "value_head.weight"
LIMITS = {"max_turn_tokens": 2, "max_turns": 4, "max_episode_tokens": 8, "context": 64}


class Even:
    """Rewards that differ: the share of even tokens among the sampled."""

    def __call__(self, X, Z, seed):
        even_T = Z.is_action_T & (Z.token_ids_T % 2 == 0)
        starts = Z.episode_offsets[:-1]
        shares = np.add.reduceat(even_T.astype(float), starts) / np.add.reduceat(
            Z.is_action_T.astype(float), starts
        )
        return Scores({"components": ["even"]}, {"rewards": shares})


def rounds(update, start, count, credit, objective, critic=True, **settings):
    """What some rounds of a small model came to."""
    model = Tiny(**SIZES, critic=critic).initial()
    resident, iota = Resident(), Inference(Plain(), **LIMITS)
    U = update(resident, objective=objective, **settings)
    state, told = start(model), []
    for n in range(count):
        seed = Seed(f"{n + 1:032x}")
        X = Product(Codes(), problems=4)(seed)
        Z = Sampled(attempts=8)(resident.policy(state.model, iota), Vault())(X, seed)
        F = Even()(X, Z, seed)
        G = credit(X, Z, F, seed)
        tensors = {name: tensor.clone() for name, tensor in state.model.tensors.items()}
        proposal = U(state, G, seed)
        told.append(SimpleNamespace(Z=Z, F=F, G=G, tensors=tensors, report=proposal.report))
        state = proposal.state
    return told, state


def test_the_loss_is_the_hand_computed_one():
    # free: a move of 0.5 within 1; held: v = 3 moved by 2, held at 1 + 1, (2 - 0)² < (3 - 0)²;
    # held and larger: v = 0 moved from 1 towards R = 0 by more than 0.2, (0.8 - 0)² > 0
    assert float(one(1.5, 1.0, 2.0, 1.0)) == pytest.approx(0.5 * 0.25)
    assert float(one(3.0, 1.0, 0.0, 1.0)) == pytest.approx(0.5 * 9.0)
    assert float(one(0.0, 1.0, 0.0, 0.2)) == pytest.approx(0.5 * 0.64)
    assert float(one(0.0, 1.0, 0.0, None)) == 0.0


def one(value, old, target, clip):
    tensors = (torch.tensor([x]) for x in (value, old, target, 1.0))
    return value_loss(*tensors, clip)


@pytest.mark.parametrize("clip", [0.2, 1.0, None])
def test_the_loss_and_its_gradient_are_those_of_the_definition(play, clip):
    G = play().G
    rng = np.random.default_rng(0)
    old, returns, new = (rng.normal(size=len(G.advantages_T)).astype("f4") for _ in range(3))
    G = G.replace({}, values=old, returns=returns)
    objective = PPO(value_coef=0.7, value_clip=clip)
    rows = value_rows(objective, G, objective.weights(G))
    values = torch.tensor(new, requires_grad=True)
    given = [torch.tensor(rows[n]) for n in ("values_T", "returns_T", "value_weights_T")]
    loss = value_loss(values, *given, clip)
    loss.backward()
    slopes_T, defined = objective.value_coefficients(G, new)
    assert float(loss.detach()) == pytest.approx(defined, rel=1e-5)
    np.testing.assert_allclose(values.grad.numpy(), slopes_T, rtol=1e-4, atol=1e-8)


def test_rows_of_no_weight_may_hold_anything():
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = value_loss(
        values, torch.zeros(2), torch.tensor([0.0, torch.nan]), torch.tensor([1.0, 0.0]), None
    )
    loss.backward()
    assert values.grad.tolist() == [1.0, 0.0]


def test_recorded_values_are_those_of_the_whole_model(update, start):
    told, _ = rounds(update, start, 3, GAE(), PPO(value_coef=0.5), lr=1e-2)
    last = told[-1]
    Z = last.Z
    module = build_module(Tiny(**SIZES, critic=True).initial().with_tensors(last.tensors))
    assert not told[0].Z.arrays["values"].any()
    for a, b in zip(Z.episode_offsets[:4], Z.episode_offsets[1:5], strict=True):
        ids = torch.from_numpy(Z.token_ids_T[a:b].astype(np.int64))
        with torch.no_grad():
            hidden = module.base_model(ids[None]).last_hidden_state[0]
            values = module.value_head(hidden)[:, 0].numpy()
        at = np.flatnonzero(Z.is_action_T[a:b])
        recorded = Z.arrays["values"][a:b]
        np.testing.assert_allclose(recorded[at], values[at - 1], atol=1e-5)
        assert not recorded[~Z.is_action_T[a:b]].any()
        assert recorded[at].any()


@pytest.mark.parametrize("credit", [GAE(), VTrace()])
@pytest.mark.parametrize("objective", [PPO(value_coef=0.5), GSPO(value_coef=0.5)])
def test_the_critic_learns(update, start, credit, objective):
    told, _ = rounds(update, start, 14, credit, objective, lr=5e-3)
    losses = [t.report["metrics"]["value/loss"] for t in told]
    first, last = np.mean(losses[:2]), np.mean(losses[-2:])
    # values are zero at first
    by_hand = 0.5 * (objective.weights(told[0].G) * told[0].G.arrays["returns"] ** 2).sum()
    assert losses[0] == pytest.approx(by_hand, rel=1e-4)
    assert last < 0.5 * first


def test_the_body_learns_from_the_critic_unless_it_is_detached(update, start):
    def body(objective):
        told, state = rounds(update, start, 2, Flat(), objective)
        before, after = told[0].tensors, dict(state.model.tensors)
        return {name for name in before if not torch.equal(before[name], after[name])}

    head = {HEAD, "value_head.bias"}
    assert body(PPO(value_coef=1.0, value_detach=True)) == head
    assert body(PPO(value_coef=1.0)) > head


class Flat(GAE):
    """Values and returns, and no advantage: nothing but the critic learns."""

    def __call__(self, X, Z, F, seed):
        G = super().__call__(X, Z, F, seed)
        return G.replace({}, advantages=np.zeros_like(G.advantages_T))


def test_a_head_that_nothing_trains_stays(update, start):
    told, state = rounds(update, start, 2, GAE(), PPO())
    assert not state.model.tensors[HEAD].any()
    assert "value/loss" not in told[0].report["metrics"]


def test_without_a_critic_the_same_round_has_the_same_numbers(update, start):
    """A head of zeros that nothing trains changes no token and no step."""
    with_head, without = (
        rounds(update, start, 2, GAE() if critic else Zero(), PPO(), critic=critic)[0]
        for critic in (True, False)
    )
    for one, other in zip(with_head, without, strict=True):
        assert (one.Z.token_ids_T == other.Z.token_ids_T).all()
        assert (one.Z.logprobs_T == other.Z.logprobs_T).all()
        assert one.report["metrics"]["loss"] == other.report["metrics"]["loss"]
        assert "values" not in other.Z.arrays


class Zero(GAE):
    """GAE with values of zero."""

    def __call__(self, X, Z, F, seed):
        return super().__call__(X, Z.replace({}, values=np.zeros_like(Z.logprobs_T)), F, seed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_reject_restores_the_head(update, start, dtype):
    model = Tiny(**SIZES, critic=True, dtype=dtype).initial()
    resident, iota = Resident(), Inference(Plain(), **LIMITS)
    seed = Seed("7" * 32)
    X = Product(Codes(), problems=2)(seed)
    Z = Sampled(attempts=4)(resident.policy(model, iota), Vault())(X, seed)
    G = GAE()(X, Z, Even()(X, Z, seed), seed)
    U = update(resident, "reject", objective=PPO(value_coef=0.5))
    state = start(model)
    proposal = U(state, G, seed)
    again = U(State(model, state.optimizer), G, seed)
    assert proposal.state.exact() == again.state.exact() != state.exact()


def test_explained_variance(play):
    G = play().G
    rows_T = G.arrays["is_action"]
    returns = np.arange(len(rows_T), dtype=np.float32)
    assert explained(G.replace({}, values=returns, returns=returns), rows_T) == 1.0
    flat = np.ones_like(returns)
    assert explained(G.replace({}, values=flat, returns=returns), rows_T) == 0.0
    assert explained(G.replace({}, values=returns, returns=flat), rows_T) == 0.0


def test_a_value_loss_without_values_is_refused(play):
    with pytest.raises(ValueError, match="a value loss needs a credit that records values and"):
        PPO(value_coef=0.5).weights(play().G)
