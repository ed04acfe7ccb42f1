"""Later tokens do not move earlier log-probabilities, for every family and on the decode path."""

import dataclasses

import families
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.policies.inference import Inference
from harness.policies.model import build_module
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny

TOLERANCE = 2e-5
"""Log-probabilities of one prefix of a small model in float32, in batches of other shapes."""


EAGER = ("gemma2", "mamba", "bloom")
"""Families that attend in no other way."""


@pytest.fixture(scope="module", params=["tiny", *families.MODELS])
def model(request, tmp_path_factory):
    if request.param == "tiny":
        return Tiny().initial()
    return families.made(request.param, tmp_path_factory.mktemp(request.param))


def attention(model):
    return "eager" if model.meta["architecture"]["model_type"] in EAGER else "sdpa"


def decoded(model, inference, rows, prompt):
    """Log-probabilities at every step of forced rows, decoded together one token a step."""
    inference = dataclasses.replace(inference, attention=attention(model))
    policy = Resident().policy(model, inference)
    session = policy.open([prompt], [0] * len(rows))
    steps = [session.logits_AV.log_softmax(-1)]
    for t in range(len(rows[0])):
        steps.append(session.feed([[row[t]] for row in rows]).log_softmax(-1))
    return torch.stack(steps, 1)


def setting():
    return Inference(
        serializer=Plain(), max_turn_tokens=8, max_episode_tokens=8, context=families.CONTEXT,
        prefill_rows=8,
    )  # fmt: skip


words = st.lists(st.integers(3, 31), min_size=6, max_size=6)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(row=words, other=words, end=words, cut=st.integers(1, 5))
def test_on_the_decode_path_nothing_later_moves_a_bit(model, row, other, end, cut):
    changed = [*row[:cut], *end[cut:]]
    prompt = [1, 5, 26, 27, 7]
    first = decoded(model, setting(), [row, other], prompt)
    second = decoded(model, setting(), [changed, other], prompt)
    assert torch.equal(first[0, : cut + 1], second[0, : cut + 1])
    # nor does another row's future
    assert torch.equal(first[1], second[1])


@settings(max_examples=15, deadline=None, derandomize=True)
@given(row=words, end=words, cut=st.integers(1, 5))
def test_in_a_whole_forward_nothing_later_moves_it(model, row, end, cut):
    module = build_module(model, attention=attention(model))
    changed = [*row[:cut], *end[cut:]]
    with torch.no_grad():
        both = [
            module(input_ids=torch.tensor([tokens])).logits.log_softmax(-1)
            for tokens in (row, changed, row[:cut])
        ]
    assert torch.equal(both[0][0, :cut], both[1][0, :cut])
    # a shorter forward is another batch shape: equal within rounding
    gap = (both[0][0, :cut] - both[2][0]).abs().max()
    assert gap < TOLERANCE


def test_the_decode_path_is_the_whole_forward(model):
    row, prompt = [8, 9, 30, 12, 25, 24], [1, 5, 26, 27, 7]
    steps = decoded(model, setting(), [row], prompt)[0]
    with torch.no_grad():
        whole = build_module(model, attention=attention(model))(
            input_ids=torch.tensor([prompt + row])
        ).logits
    gap = (steps - whole[0, len(prompt) - 1 :].log_softmax(-1)).abs().max()
    assert gap < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_of_smollm2_too(smollm2_folder, dtype):
    from harness.policies.smollm2 import Smollm2

    model = Smollm2(dtype=dtype).initial()
    inference = dataclasses.replace(setting(), context=256)
    prompt, row, end = [1, 504, 282, 260], [338, 216, 33, 1042], [338, 216, 999, 77]
    first = decoded(model, inference, [row, end], prompt)
    second = decoded(model, inference, [end, end], prompt)
    assert torch.equal(first[0, :3], second[0, :3])
    assert torch.equal(first[1], second[1])
    ids = torch.tensor([prompt + row])
    with torch.no_grad():
        whole, exact = (
            module(input_ids=ids).logits[0, len(prompt) - 1 :].double().log_softmax(-1)
            for module in (build_module(model), build_module(model).double())
        )
    # thirty layers deep: no further from float64 than a whole forward is
    error, own = ((x.double() - exact).abs().max() for x in (first[0], whole))
    assert error <= 1.5 * own + 8 * torch.finfo(getattr(torch, dtype)).eps * exact.abs().max()


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
