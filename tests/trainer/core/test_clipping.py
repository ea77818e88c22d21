"""What clipping by norm makes of a gradient, on both sides of its limit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from relkit.trainer.core import clipping
from relkit.trainer.core.clipping import StepFacts, step_facts
from relkit.trainer.core.mesh import build_mesh
from tests.trainer.layouts import ALONE

# Norm 5.
GRADIENTS = (torch.tensor([3.0, 0.0]), torch.tensor([[4.0]]))


def facts(
    clip_value: float,
    scale: float = 1.0,
    bad: float | None = None,
    clip_type: str = "ClipGlobalNorm",
) -> StepFacts:
    config = ALONE.config("gpt2")
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    clipped = replace(config.training, clip_value=clip_value, grad_clip_type=clip_type)
    gradients = [scale * each for each in GRADIENTS]
    if bad is not None:
        gradients[1][0, 0] = bad
    return step_facts(gradients, mesh, clipped, scale)


@pytest.mark.parametrize(
    ("clip_value", "coefficient"),
    [(1.0, 1 / (5 + 1e-6)), (4.999, 4.999 / (5 + 1e-6)), (5.1, 1.0), (1e6, 1.0), (0.0, 1.0)],
)
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_a_gradient_is_made_smaller_and_never_larger(
    clip_value: float, coefficient: float, scale: float
) -> None:
    measured = facts(clip_value, scale)
    assert measured == StepFacts(5.0, True, measured.clip_coefficient, scale)
    assert measured.clip_coefficient == pytest.approx(coefficient, rel=1e-12)


def test_clipping_by_value_leaves_the_norm_alone() -> None:
    assert facts(1.0, clip_type="GradClipByValue").clip_coefficient == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_said_and_not_clipped(bad: float) -> None:
    measured = facts(1.0, bad=bad)
    assert not measured.finite
    assert measured.clip_coefficient == 1.0


@pytest.mark.parametrize(
    ("gradient", "norm"),
    [
        # One float32 sum would lose the small ones, and a float32 square bits of 0.1's.
        (
            torch.cat((torch.tensor([4096.0, 0.0, 0.0, 0.0]), torch.full((4000,), 0.5))),
            math.sqrt(4096**2 + 1000),
        ),
        (torch.full((1000,), 0.1), float(torch.tensor(0.1)) * math.sqrt(1000)),
    ],
    ids=["small ones", "squares"],
)
def test_rows_are_added_up_in_double(
    gradient: torch.Tensor, norm: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clipping, "ROW", 1)
    config = ALONE.config("gpt2")
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    measured = step_facts([gradient], mesh, config.training, 1.0)
    assert measured.grad_norm == pytest.approx(norm, rel=1e-12)


def test_a_million_elements_have_their_norm() -> None:
    """torch's own norm in float32 is wrong by 1e-5 there, and with it the clipping."""
    gradient = torch.randn(1_000_001, generator=torch.Generator().manual_seed(0)).mul_(1e-3)
    config = ALONE.config("gpt2")
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    measured = step_facts([gradient], mesh, config.training, 1.0)
    assert measured.grad_norm == pytest.approx(float(gradient.double().norm()), rel=1e-8)
