"""Linear layers in fp32 on a CPU: by oneDNN where MKL, torch's first choice, is slow.

MKL's fast kernels are for its maker's processors; on AMD's, oneDNN's same products took less than
half the time (Zen 5, one core: 240 against 108 GFLOP/s). Both compute in fp32. Which one is taken
depends on the processor alone, never on a measurement, so that a run gives the same bits again.

torch offers oneDNN's strict fp32 product as an operator of its compiler only; where that operator
is missing, or for any other type or device, this is torch's own linear.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

VENDORS = ("AuthenticAMD", "HygonGenuine")


@lru_cache(maxsize=1)
def onednn_is_faster() -> bool:
    """Whether this host's processor is one on which MKL takes its slow way."""
    if platform.machine() != "x86_64" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        description = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(vendor in description for vendor in VENDORS)


def _product(rows: Tensor, columns: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows [..., K] times the transpose of columns [N, K]."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, columns, bias, "none", [], "")
    return result


class _OneDnnLinear(torch.autograd.Function):
    """`functional.linear`, all three products of it by oneDNN."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,  # noqa: ANN001
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight = ctx.saved_tensors
        for_x = for_weight = for_bias = None
        if ctx.needs_input_grad[0]:
            for_x = _product(gradient, weight.t())
        rows = gradient.flatten(0, -2)
        if ctx.needs_input_grad[1]:
            inputs = x.flatten(0, -2)
            # The operator copies a transposed first factor: let that be the narrower one.
            if weight.shape[0] >= 8 * weight.shape[1]:
                for_weight = _product(inputs.t(), rows.t()).t()
            else:
                for_weight = _product(rows.t(), inputs.t())
        if ctx.needs_input_grad[2]:
            for_bias = rows.sum(0)
        return for_x, for_weight, for_bias


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`functional.linear(x, weight, bias)`, by whichever library is faster on this host.

    Args:
        x: [..., K], at least one dimension before K.
        weight: [N, K].
        bias: [N], or None.
    """
    if (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel()
        and onednn_is_faster()
        and not torch.is_autocast_enabled("cpu")
    ):
        result: Tensor = _OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return functional.linear(x, weight, bias)


class Linear(nn.Linear):
    """torch's Linear with `linear` of this module."""

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features] to [..., out_features]."""
        return linear(x, self.weight, self.bias)
