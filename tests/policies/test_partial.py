import pytest
import torch

from harness.policies.model import build_module
from harness.policies.partial import Partial
from harness.policies.tiny import Tiny

TINY = Tiny(hidden=32, heads=2, intermediate=64)


def test_the_artifact_is_the_base_and_the_named_tensors():
    model, base = Partial(TINY, train=("model.layers.1.*", "model.norm.weight")).initial(), TINY
    assert model.meta["base"] == model.base.id == base.initial().id
    assert all(n.startswith("model.layers.1.") or n == "model.norm.weight" for n in model.tensors)
    assert len(model.tensors) == 10
    ids = torch.tensor([[1, 5, 26, 27, 7]])
    assert torch.equal(build_module(model)(ids).logits, build_module(model.base)(ids).logits)
    moved = model.with_tensors({n: t + 0.1 for n, t in model.tensors.items()})
    whole = model.base.with_tensors({**model.base.tensors, **moved.tensors})
    assert torch.equal(build_module(moved)(ids).logits, build_module(whole)(ids).logits)
    assert len({model.id, moved.id, whole.id}) == 3


def test_a_critics_head_is_trained_whatever_is_named():
    model = Partial(Tiny(critic=True), train=("model.norm.weight",)).initial()
    assert set(model.tensors) == {"model.norm.weight", "value_head.weight", "value_head.bias"}
    assert Partial(Tiny(critic=True), train=("model.norm.weight",)).critic


def test_patterns_without_a_tensor_are_refused():
    message = (
        r"^model.train has 'lm_head.*', which names no tensor of the base; they are called "
        r"model.embed_tokens.weight … model.norm.weight$"
    )
    with pytest.raises(ValueError, match=message):
        Partial(TINY, train=("lm_head.*",)).initial()
    with pytest.raises(ValueError, match=r"^model.train is empty; it is patterns, such as"):
        Partial(TINY, train=())
    with pytest.raises(ValueError, match=r"^model.base is 'x', which gives no model; choose one"):
        Partial("x", train=("*",))
