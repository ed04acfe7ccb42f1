import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.identity import settings
from harness.policies.critic import FILE, with_critic
from harness.policies.inference import Inference
from harness.policies.model import build_module, read_folder, tensors_of, write_folder
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny

SMALL = {"hidden": 32, "heads": 2, "intermediate": 64}
HEAD = ("value_head.weight", "value_head.bias")


@pytest.fixture(scope="module")
def plain():
    return Tiny(**SMALL).initial()


@pytest.fixture(scope="module")
def critic():
    """A model whose head is not zero."""
    model = Tiny(**SMALL, critic=True).initial()
    generator = torch.Generator().manual_seed(0)
    drawn = {name: torch.randn(model.tensors[name].shape, generator=generator) for name in HEAD}
    return model.with_tensors({**model.tensors, **drawn})


def test_a_head_of_zeros_is_part_of_the_model(plain):
    model = Tiny(**SMALL, critic=True).initial()
    assert model.id != plain.id
    assert [tuple(model.tensors[name].shape) for name in HEAD] == [(1, 32), (1,)]
    assert not any(model.tensors[name].any() for name in HEAD)
    assert model.meta["architecture"] == {**plain.meta["architecture"], "value_head": True}
    assert with_critic(model) is model
    assert with_critic(plain).id == model.id


def test_the_module_has_the_head(critic):
    module = build_module(critic)
    assert torch.equal(module.value_head.weight, critic.tensors["value_head.weight"])
    assert sorted(tensors_of(module)) == sorted(critic.tensors)


def test_a_folder_keeps_the_head_beside_an_ordinary_model(critic, tmp_path):
    folder = write_folder(critic, tmp_path / "model")
    assert read_folder(folder).id == critic.id
    # warnings are errors: transformers finds nothing strange
    theirs, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not told["unexpected_keys"]
    assert not told["missing_keys"]
    ids = torch.tensor([[1, 9, 10]])
    assert torch.equal(theirs(ids).logits, build_module(critic)(ids).logits)
    (folder / FILE).unlink()
    with pytest.raises(ValueError, match=r"lacks value_head\.safetensors, and its config\.json"):
        read_folder(folder)


def test_values_are_the_heads_of_the_states_that_rows_act_in(critic):
    iota = Inference(Plain(), context=32, max_episode_tokens=16, max_turn_tokens=8)
    policy = Resident().policy(critic, iota)
    assert policy.critic
    prompts = [[1, 9, 10], [1, 12, 13, 14]]
    session = policy.open(prompts, [0, 1, 1])
    session.feed([[8], [], [9]])
    module = build_module(critic)
    rows = [[*prompts[1], 9], [*prompts[0], 8]]
    for value, ids in zip(session.values([2, 0]), rows, strict=True):
        hidden = module.base_model(torch.tensor([ids])).last_hidden_state[0, -1]
        by_hand = hidden @ critic.tensors[HEAD[0]][0] + critic.tensors[HEAD[1]][0]
        assert value == pytest.approx(float(by_hand), abs=1e-5)


def test_prompts_prefilled_apart_have_their_values(critic):
    prompts = [[1, 9, 10], [1, 12, 13, 14], [2, 8]]
    limits = {"context": 32, "max_episode_tokens": 16, "max_turn_tokens": 8}
    together, apart = (
        Resident().policy(critic, Inference(Plain(), **limits, prefill_rows=rows)).open(
            prompts, [0, 1, 2]
        )
        for rows in (8, 2)
    )  # fmt: skip
    assert together.values([0, 1, 2]) == pytest.approx(apart.values([0, 1, 2]), abs=1e-5)


def test_a_policy_without_a_head_has_no_values(plain):
    iota = Inference(Plain(), context=32, max_episode_tokens=16, max_turn_tokens=8)
    assert not Resident().policy(plain, iota).critic


def test_a_setting_at_its_default_leaves_a_version_as_it_was():
    document = settings(Tiny(**SMALL))
    assert "critic" not in document["settings"]
    assert settings(Tiny(**SMALL, critic=True))["settings"] == {
        **document["settings"], "critic": True,
    }  # fmt: skip
