"""Later tokens do not move earlier log-probabilities, for every family and on the decode path."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.policies.inference import Inference
from harness.policies.model import Model, architecture_of, build_module
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny, tokenizer_files

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.15}
"""Log-probabilities of one prefix in batches of other shapes, by dtype."""


def gpt2():
    """A GPT-2 of the tiny vocabulary, with weights of its own."""
    from transformers import AutoModelForCausalLM, GPT2Config

    config = GPT2Config(
        vocab_size=32, n_positions=64, n_embd=48, n_layer=2, n_head=4, bos_token_id=1,
        eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(config)
    tensors = {name: p.detach().clone() for name, p in module.named_parameters()}
    return Model.of(architecture_of(config), tokenizer_files(), tensors)


MODELS = {"tiny": lambda: Tiny().initial(), "gpt2": gpt2}
made = {}


def model_of(name):
    if name not in made:
        made[name] = MODELS[name]()
    return made[name]


def decoded(model, inference, rows, prompt):
    """Log-probabilities at every step of forced rows, decoded together one token a step."""
    policy = Resident().policy(model, inference)
    session = policy.open([prompt], [0] * len(rows))
    steps = [session.logits_AV.log_softmax(-1)]
    for t in range(len(rows[0])):
        steps.append(session.feed([[row[t]] for row in rows]).log_softmax(-1))
    return torch.stack(steps, 1)


def setting():
    return Inference(
        serializer=Plain(), max_turn_tokens=8, max_episode_tokens=8, context=64, prefill_rows=8
    )


words = st.lists(st.integers(3, 31), min_size=6, max_size=6)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(row=words, other=words, end=words, cut=st.integers(1, 5))
def test_on_the_decode_path_nothing_later_moves_a_bit(name, row, other, end, cut):
    changed = [*row[:cut], *end[cut:]]
    prompt = [1, 5, 26, 27, 7]
    first = decoded(model_of(name), setting(), [row, other], prompt)
    second = decoded(model_of(name), setting(), [changed, other], prompt)
    assert torch.equal(first[0, : cut + 1], second[0, : cut + 1])
    # nor does another row's future
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(row=words, end=words, cut=st.integers(1, 5))
def test_in_a_whole_forward_nothing_later_moves_it(name, row, end, cut):
    module = build_module(model_of(name))
    changed = [*row[:cut], *end[cut:]]
    with torch.no_grad():
        both = [
            module(input_ids=torch.tensor([tokens])).logits.log_softmax(-1)
            for tokens in (row, changed, row[:cut])
        ]
    assert torch.equal(both[0][0, :cut], both[1][0, :cut])
    # a shorter forward is another batch shape: equal within rounding
    gap = (both[0][0, :cut] - both[2][0]).abs().max()
    assert gap < TOLERANCE[torch.float32]


@pytest.mark.parametrize("name", MODELS)
def test_the_decode_path_is_the_whole_forward(name):
    row, prompt = [8, 9, 30, 12, 25, 24], [1, 5, 26, 27, 7]
    steps = decoded(model_of(name), setting(), [row], prompt)[0]
    with torch.no_grad():
        whole = build_module(model_of(name))(input_ids=torch.tensor([prompt + row])).logits
    gap = (steps - whole[0, len(prompt) - 1 :].log_softmax(-1)).abs().max()
    assert gap < TOLERANCE[torch.float32]


@pytest.mark.slow
def test_of_smollm2_too(smollm2_folder):
    from harness.policies.smollm2 import Smollm2

    model = Smollm2(dtype="bfloat16").initial()
    inference = dataclasses.replace(setting(), context=256)
    prompt, row, end = [1, 504, 282, 260], [338, 216, 33, 1042], [338, 216, 999, 77]
    first = decoded(model, inference, [row, end], prompt)
    second = decoded(model, inference, [end, end], prompt)
    assert torch.equal(first[0, :3], second[0, :3])
    assert torch.equal(first[1], second[1])
    with torch.no_grad():
        whole = build_module(model)(input_ids=torch.tensor([prompt + row])).logits.float()
    gap = (first[0] - whole[0, len(prompt) - 1 :].log_softmax(-1)).abs().max()
    assert gap < TOLERANCE[torch.bfloat16]


def test_a_policy_never_sees_the_answer(opened):
    """Other codes behind the same door: the same first actions, bit for bit."""
    from harness.forms import Instance

    recorded = opened(1)
    session = recorded.session
    X = recorded.value("S")
    hidden = [{**p, "codes": ["7"], "answer": "7"} for p in X.problems]
    policy = session.resident.policy(session.initial.model, session.inference)
    roll = session.maps.R(policy, session.experiment.environment)
    Zs = [roll(x, recorded.seeds.roll) for x in (X, Instance({"problems": hidden}))]
    firsts = [
        [(Z.token_ids_T[i], Z.logprobs_T[i]) for i in first_actions(Z)] for Z in Zs
    ]  # fmt: skip
    assert firsts[0] == firsts[1]


def first_actions(Z):
    starts = Z.arrays["turn_start"]
    episode = Z.arrays["turn_episode"]
    return [starts[i] for i in range(len(starts)) if i == 0 or episode[i] != episode[i - 1]]
