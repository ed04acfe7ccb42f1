"""The engine on architectures that differ in head, attention, positions and names."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from families import CONTEXT, MODELS, made

from harness.forms import Event, Instance, Lesson
from harness.policies.inference import Inference
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.rollout.sampled import Sampled
from harness.round import Seed, State
from harness.update.deepspeed import DeepSpeed
from harness.update.engine import initial_optimizer
from harness.update.gates.always import Always
from harness.update.objectives.ppo import PPO

SEED = Seed("44" * 16)


@dataclass(frozen=True)
class Chatter:
    """Observations of different lengths, so that rows are padded."""

    version: ClassVar[str] = "1"
    tools: ClassVar[list[Any]] = []

    def reset(self, problem: Any, seed: Seed) -> tuple[int, list[dict[str, Any]]]:
        return problem["longest"], [{"role": "user", "content": problem["text"]}]

    def step(self, state: int, action: Any) -> tuple[int, Event]:
        words = ["code", "1", "closed", "2", "wrong", "3", "nothing", "4"][:state]
        return state, Event([{"role": "user", "content": " ".join(words)}])


LONG = "vault closed look open wrong nothing code code 1 2 3"
# the second gets eight words while the first is near the end of its positions
X = Instance({"problems": [{"text": LONG, "longest": 1}, {"text": "look", "longest": 8}]})


@pytest.fixture(params=MODELS)
def model(request, tmp_path):
    return made(request.param, tmp_path)


def reference(model: Any, Z: Any, tmp_path: Any) -> np.ndarray:
    """Log-probabilities by transformers' own loading and forward of each episode."""
    from transformers import AutoModelForCausalLM

    module = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    found = np.zeros(len(Z.token_ids_T))
    for a, b in pairwise(Z.episode_offsets):
        ids = torch.from_numpy(Z.token_ids_T[a:b].astype(np.int64))
        with torch.no_grad():
            x = module(input_ids=ids[None]).logits[0].double() / 0.8
        d = x - x.amax(-1, keepdim=True)
        cut = torch.from_numpy(Z.arrays["threshold"][a:b].astype(np.float64))[1:]
        d[:-1] = d[:-1].masked_fill(d[:-1] < cut[:, None], -torch.inf)
        logp = d.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
        found[a + 1 : b] = logp.numpy()
    return np.where(Z.is_action_T, found, 0.0)


def test_a_round_of_any_causal_model(model, tmp_path):
    # the attention scores of Gemma 2 are capped: it has the eager path alone
    kind = model.meta["architecture"]["model_type"]
    attention = "eager" if kind in ("gemma2", "mamba", "bloom") else "sdpa"
    iota = Inference(
        serializer=Plain(), max_turn_tokens=3, max_turns=6, max_episode_tokens=CONTEXT,
        context=CONTEXT, temperature=0.8, top_p=0.9, attention=attention,
    )  # fmt: skip
    resident = Resident()
    Z = Sampled(attempts=3)(resident.policy(model, iota), Chatter())(X, SEED)
    assert np.diff(Z.episode_offsets).max() <= CONTEXT
    mask = Z.is_action_T
    assert Z.logprobs_T[mask] == pytest.approx(reference(model, Z, tmp_path)[mask], abs=2e-5)

    credit = np.repeat([1.0, -1.0, 0.5, 0.0, 1.0, -2.0], np.diff(Z.episode_offsets)) * mask
    names = ("token_ids", "is_action", "episode_offsets", "logprobs", "threshold")
    G = Lesson(
        {"problems": 2, "attempts": 3, "sampling": Z.meta["sampling"], "use": "policy",
         "pairs": [], "unscorable": []},
        {**{n: Z.arrays[n] for n in names}, "advantages": credit.astype(np.float32)},
    )  # fmt: skip
    start = State(model, initial_optimizer(model))

    def update(lr: float) -> Any:
        gates = {"always": Always()}
        settings = {"lr": lr, "attention": attention, "resident": resident}
        return DeepSpeed(objective=PPO(), gates=gates, **settings)(start, G, SEED)

    still = update(1e-30).report["metrics"]
    assert still["policy/ratio_max"] == pytest.approx(1, abs=5e-5)
    assert still["rollout/mismatch"] < 5e-6
    assert still["grad_norm"] > 0
    P = update(1e-3)
    alone = ": the model takes no tree's mask" if kind in ("mamba", "bloom") else ""
    assert P.report["prefixes"] == ("unshared" if alone else "shared") + alone
    assert P.state.model.id != model.id
    # every tensor that training can reach has moved
    moved = [n for n, t in P.state.model.tensors.items() if not torch.equal(t, model.tensors[n])]
    assert len(moved) >= 0.8 * len(model.tensors)


@pytest.mark.parametrize("kind", ["llama", "mamba"])
def test_rows_that_wait_are_not_computed_and_lose_nothing(kind, tmp_path):
    model = made(kind, tmp_path)
    iota = Inference(
        serializer=Plain(), context=CONTEXT, max_episode_tokens=8, max_turn_tokens=4,
        attention="eager",
    )  # fmt: skip
    policy = Resident().policy(model, iota)
    session = policy.open([[1, 5, 26], [1, 7]], [0, 1, 1, 0])
    counted: list[int] = []
    base = session.module.base_model
    hook = base.register_forward_pre_hook(
        lambda _, args, words: counted.append(len(words["input_ids"])), with_kwargs=True
    )
    rows = [[1, 5, 26], [1, 7], [1, 7], [1, 5, 26]]
    fed = [
        [[3], [4], [5], [6]], [[], [8], [], [9]], [[], [], [], [10]], [[11, 12], [], [13], []],
        [[14], [15, 16, 17], [18], [19]],
    ]  # fmt: skip
    for step, new in enumerate(fed):
        logits = session.feed(new)
        rows = [[*row, *more] for row, more in zip(rows, new, strict=True)]
        going = [row for row, more in zip(rows, new, strict=True) if more]
        for found, row in zip(logits, going, strict=True):
            alone = policy.open([row], [0]).logits_AV[0]
            assert found.numpy() == pytest.approx(alone.numpy(), abs=1e-5), step
            counted.pop()  # the one that ran alone
    hook.remove()
    assert counted == [4, 2, 1, 2, 4]
    session.select([3, 1])
    for found, row in zip(session.feed([[3], [4]]), ([*rows[3], 3], [*rows[1], 4]), strict=True):
        alone = policy.open([row], [0]).logits_AV[0]
        assert found.numpy() == pytest.approx(alone.numpy(), abs=1e-5)


def test_an_attention_that_a_model_lacks_is_refused(tmp_path):
    resident = Resident()
    resident.load(made("gemma2", tmp_path))
    message = "inference.attention is sdpa, which gemma2 models or this machine lack; it must be"
    with pytest.raises(ValueError, match=message):
        resident.attend("sdpa", "inference.attention")


def test_dropping_a_module_leaves_nothing(tmp_path):
    resident = Resident()
    model = made("llama", tmp_path)
    module = resident.load(model)
    assert resident.load(model) is module
    resident.drop()
    assert (resident.module, resident.current, resident.caches) == (None, None, {})
    assert resident.load(model) is not module


def test_a_context_beyond_the_positions_of_a_model_is_refused(tmp_path):
    iota = Inference(
        serializer=Plain(), context=CONTEXT + 1, max_episode_tokens=8, max_turn_tokens=2
    )
    message = f"inference.context is {CONTEXT + 1}, and this model has {CONTEXT} positions; it must"
    for kind in ("llama", "gpt2"):
        with pytest.raises(ValueError, match=message):
            Resident().policy(made(kind, tmp_path / kind), iota)


def test_a_context_beyond_a_sliding_window_is_refused(tmp_path, monkeypatch):
    own = MODELS["gemma2"][1] | {"sliding_window": 16}
    monkeypatch.setitem(MODELS, "gemma2", ("Gemma2Config", own))
    iota = Inference(serializer=Plain(), context=17, max_episode_tokens=8, max_turn_tokens=2)
    with pytest.raises(ValueError, match=r"attend over a window of 16, .* at most 16"):
        Resident().policy(made("gemma2", tmp_path), iota)
    monkeypatch.setitem(MODELS, "qwen2", ("Qwen2Config", {"sliding_window": 16}))
    Resident().policy(made("qwen2", tmp_path / "qwen2"), iota)
