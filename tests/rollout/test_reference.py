import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.bound import reference_model, with_reference
from harness.environments.vault import Vault
from harness.identity import Version
from harness.policies.inference import Inference
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny
from harness.rollout.reference import Reference
from harness.rollout.sampled import Sampled
from harness.round import Seed
from harness.tasks.product import Product
from harness.tasks.vault import Vault as Task
from harness.world import World

SMALL = {"hidden": 32, "heads": 2, "intermediate": 64, "scale": 0.3}
SEED = Seed("5" * 32)


@pytest.fixture(scope="module")
def model():
    return Tiny(**SMALL).initial()


@pytest.fixture(scope="module")
def other():
    return Tiny(**SMALL, seed=1, layers=1).initial()


def settings(**given):
    return Inference(
        Plain(), max_turn_tokens=2, max_episode_tokens=12, max_turns=6, context=96, **given
    )


def roll(model, reference=None, **given):
    inference = settings(**given)
    R = Sampled(attempts=4, reference=Reference() if reference is not None else None)
    if reference is not None:
        R = with_reference(R, reference, inference)
    X = Product(Task(), problems=2)(SEED)
    return R(Resident().policy(model, inference), Vault())(X, SEED)


@pytest.mark.parametrize(
    "given", [{}, {"temperature": 0.7, "top_k": 5}, {"top_p": 0.8}, {"attention": "eager"}]
)
def test_the_policy_as_its_own_reference_has_no_divergence(model, given):
    Z = roll(model, model, **given)
    ref_T = Z.arrays["ref_logprobs"]
    assert ref_T.dtype == np.float32
    assert_allclose(ref_T, Z.logprobs_T, atol=1e-5)
    assert not ref_T[~Z.is_action_T].any()
    assert (ref_T[Z.is_action_T] < 0).all()


def test_a_reference_changes_nothing_else(model, other):
    plain, Z = roll(model), roll(model, other)
    assert all((Z.arrays[name] == array).all() for name, array in plain.arrays.items())
    assert {k: v for k, v in Z.meta.items() if k != "reference"} == dict(plain.meta)
    gap_T = (Z.arrays["ref_logprobs"] - Z.logprobs_T)[Z.is_action_T]
    assert np.abs(gap_T).mean() > 0.1


def test_the_work_is_told(model, other):
    Z = roll(model, other)
    told = Z.meta["reference"]
    assert (told["id"], told["width"]) == (other.id, 32)
    assert len(np.unique(Z.episode_offsets)) - 1 <= told["tokens"] < len(Z.token_ids_T)
    assert told["tokens"] <= told["attended"]


def test_any_number_of_ranks_records_the_same(model, other):
    """Two ranks, one after the other: each scores its batches, and together they have all."""
    inference = settings()
    R = with_reference(Sampled(attempts=4, reference=Reference(micro_tokens=8)), other, inference)
    Z = roll(model)
    packed = (Z.token_ids_T, Z.episode_offsets, Z.is_action_T, None, Z.meta["sampling"], 4)
    parts = [
        R.reference.scorer.score(*packed, micro_tokens=8, share=World(rank, 2).share)
        for rank in (0, 1)
    ]
    alone = R.reference.record(Z).arrays["ref_logprobs"]
    assert not (parts[0][1] & parts[1][1]).any()
    assert parts[0][1].any()
    assert parts[1][1].any()
    assert (parts[0][0] + parts[1][0] == alone).all()


def test_the_model_is_part_of_the_version(model, other):
    one, same, different = (
        with_reference(Sampled(reference=Reference(source=source)), m, settings())
        for source, m in [("initial", model), (Tiny(**SMALL), model), ("initial", other)]
    )
    assert Version.of(one) == Version.of(same) != Version.of(different)
    assert one.reference.source == model.id


def test_a_source_is_found_or_refused(model, other):
    def stored(name):
        return {other.id: other}[name]

    assert reference_model("initial", model, stored) is model
    assert reference_model(other.id, model, stored) is other
    assert reference_model(Tiny(**SMALL), model, stored).id == model.id
    with pytest.raises(ValueError, match="which is not in the store; give the identifier"):
        reference_model("sha256:" + "0" * 64, model, stored)
    strange = dataclasses.replace(other, meta={**other.meta, "tokenizer": "another"})
    with pytest.raises(ValueError, match="has another tokenizer than the model that is trained"):
        reference_model(other.id, model, lambda name: strange)


def test_settings_that_name_nothing_are_refused():
    with pytest.raises(ValueError, match=r"source is 'M_0'; it is initial, the identifier"):
        Reference(source="M_0")
    with pytest.raises(ValueError, match=r"source is 3, which gives no model"):
        Reference(source=3)
    with pytest.raises(ValueError, match=r"micro_tokens is 0; it is at least 1"):
        Reference(micro_tokens=0)
    with pytest.raises(ValueError, match="the reference has no model yet"):
        Reference().record(None)
