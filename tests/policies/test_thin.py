import pytest
import torch

from harness.policies import thin


@pytest.fixture
def turned(monkeypatch):
    """How often a product was turned round."""
    calls = []
    product = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: calls.append(a.shape) or product(a, b))
    return calls


@pytest.mark.parametrize("rows", [(1,), (3, 1), (4,), (2, 2)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_a_thin_product_is_as_exact_as_torch(turned, rows, bias):
    torch.manual_seed(0)
    x, weight = torch.randn(*rows, 256), torch.randn(300, 256)
    b = torch.randn(300) if bias else None
    found = thin.linear(x, weight, b)
    own = torch.nn.functional.linear(x, weight, b)
    wide = None if b is None else b.double()
    exact = torch.nn.functional.linear(x.double(), weight.double(), wide)
    assert found.shape == own.shape
    assert found.is_contiguous()
    assert len(turned) == 1
    error, torchs = ((y.double() - exact).abs().max() for y in (found, own))
    assert error <= 1.5 * torchs + 1e-5


def test_other_products_are_torchs_own(turned):
    x, weight = torch.randn(4, 256), torch.randn(300, 256)
    with torch.no_grad():
        for a, w in (
            (torch.randn(5, 256), weight), (x[:0], weight), (x, weight[:200]),
            (x.bfloat16(), weight.bfloat16()),
        ):  # fmt: skip
            assert torch.equal(thin.linear(a, w), torch.nn.functional.linear(a, w))
    weight.requires_grad_()
    thin.linear(x, weight).sum().backward()
    assert weight.grad is not None
    assert not turned


def test_a_module_keeps_its_names_and_its_hooks(turned):
    module = thin.thinned(torch.nn.Sequential(torch.nn.Linear(256, 300), torch.nn.ReLU()))
    seen = []
    module[0].register_forward_hook(lambda *_: seen.append(True))
    with torch.no_grad():
        module(torch.randn(2, 256))
    assert list(module.state_dict()) == ["0.weight", "0.bias"]
    assert (seen, len(turned)) == ([True], 1)
