"""Linear layers by oneDNN: torch's numbers, whatever the shapes, and torch's own way otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from relkit.trainer.kernels import gemm

SHAPES = [((2, 7), 16, 24), ((13,), 8, 72), ((1, 1), 5, 3), ((3, 4), 32, 1)]


@pytest.fixture(params=[True, False], ids=["onednn", "torch"])
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(gemm, "onednn_is_faster", lambda: request.param)
    return bool(request.param)


def gradients(
    function: Callable[..., Tensor], *inputs: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    leaves = [None if tensor is None else tensor.clone().requires_grad_() for tensor in inputs]
    output = function(*leaves)
    held = [leaf for leaf in leaves if leaf is not None]
    return output, torch.autograd.grad(output.sin().sum(), held)


@pytest.mark.parametrize(("rows", "width", "out"), SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.usefixtures("product")
def test_value_and_gradients_are_torchs(
    rows: tuple[int, ...], width: int, out: int, with_bias: bool
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(*rows, width), torch.randn(out, width)
    bias = torch.randn(out) if with_bias else None
    ours, our_gradients = gradients(gemm.linear, x, weight, bias)
    theirs, their_gradients = gradients(functional.linear, x, weight, bias)
    assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert_close(our_gradients, their_gradients, rtol=1e-4, atol=1e-5)


def test_products_are_full_fp32(product: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(64, 512), torch.randn(256, 512)
    exact = (x.double() @ weight.double().t()).float()
    error = (gemm.linear(x, weight) - exact).abs().max() / exact.abs().max()
    assert error < 2e-6
    assert product is gemm.onednn_is_faster()


@pytest.mark.usefixtures("product")
def test_no_rows_and_other_types_are_torchs_own() -> None:
    layer = gemm.Linear(4, 3)
    empty = layer(torch.empty(0, 4))
    assert empty.shape == (0, 3)
    empty.sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()
    double = torch.randn(2, 4, dtype=torch.float64)
    assert gemm.linear(double, torch.ones(3, 4, dtype=torch.float64)).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(2, 4)).dtype == torch.bfloat16


@pytest.mark.usefixtures("product")
def test_accumulates_into_a_gradient_that_is_a_view_of_a_buffer() -> None:
    layer = gemm.Linear(2, 40, bias=False)
    flat = torch.zeros(100)
    layer.weight.grad = flat[10:90].view(40, 2)
    x = torch.randn(5, 2)
    for _ in range(2):
        layer(x).sum().backward()
    assert_close(flat[10:90].view(40, 2), 2 * x.sum(0).expand(40, 2))
    assert not flat[:10].any()
    assert not flat[90:].any()


@pytest.mark.usefixtures("product")
def test_nothing_is_kept_for_a_backward_pass_that_will_not_come() -> None:
    layer = gemm.Linear(4, 3)
    with torch.no_grad():
        assert not layer(torch.randn(2, 4)).requires_grad
    frozen = layer.requires_grad_(False)
    x = torch.randn(2, 4, requires_grad=True)
    frozen(x).sum().backward()
    assert x.grad is not None
    assert frozen.weight.grad is None
