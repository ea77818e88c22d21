"""Every layout takes the step of one process: loss and every gradient, and fifty steps more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from relkit.trainer.config.config import OptimizerConfig, TrainerConfig
from relkit.trainer.core.build import build_model, loss_function
from relkit.trainer.core.init import shard
from relkit.trainer.core.mesh import Mesh, build_mesh
from relkit.trainer.core.optimizer import build_optimizer
from relkit.trainer.core.parameters import ParamInfo
from relkit.trainer.core.pipeline import run_step
from tests.trainer.layouts import ALONE, LAYOUTS, MODELS, micro_batches
from tests.trainer.processes import Place, run_ranks

STEPS = 50
TOLERANCE = 1e-5
CURVE_TOLERANCE = 1e-3
OPTIMIZER = OptimizerConfig(learning_rate=3e-3)

CASES = [(layout, model) for layout in LAYOUTS for model in layout.models]
NAMES = [f"{layout.name}, {model}" for layout, model in CASES]
CURVES = [
    number
    for number, (layout, model) in enumerate(CASES)
    if layout.goes_on and model == layout.models[0]
]
"""Cases that go on for fifty steps."""
RANKS = max(layout.ranks for layout in LAYOUTS)


class Run:
    """One process's part of a run."""

    def __init__(self, config: TrainerConfig) -> None:
        self.config = config
        self.mesh = build_mesh(config.parallel, config.model, backend="gloo")
        self.chunks, self.infos = build_model(config, self.mesh)
        self.optimizer = build_optimizer(self.chunks, self.infos, config, self.mesh)
        self.loss = loss_function(config, self.mesh)

    def forward_backward(self, step: int) -> float | None:
        """Leaves reduced gradients; returns the mean loss, None before the last stage."""
        data = self.mesh.data
        batches = micro_batches(step, rank=data.rank, ranks=data.size)
        self.optimizer.zero_grad()
        losses = run_step(
            self.chunks,
            batches,
            self.loss,
            self.mesh,
            self.config,
            grad_scale=1 / (len(batches) * data.size),
        )
        self.optimizer.reduce_gradients()
        return torch.stack(losses).mean().item() if losses else None

    def gradients(self) -> Iterator[tuple[ParamInfo, Tensor]]:
        """Every parameter held here with its gradient, whole also where it is a shard's."""
        for buffer in self.optimizer.buffers:
            buffer.gather(buffer.gradients)
        for chunk in self.chunks:
            for name, parameter in chunk.named_parameters():
                assert parameter.grad is not None
                yield self.infos[name], parameter.grad

    def curve(self) -> list[float | None]:
        """The losses of fifty steps."""
        losses = []
        for step in range(STEPS):
            losses.append(self.forward_backward(step))
            self.optimizer.update(self.optimizer.prepare(), OPTIMIZER.learning_rate)
            self.optimizer.gather_parameters()
        return losses


def of_one_process(model: str) -> dict[str, Any]:
    """The losses, and the first step's gradients by their parameters' names, without any world."""
    run = Run(ALONE.config(model, OPTIMIZER))
    loss = run.forward_backward(0)
    gradients = {info.name: gradient.clone() for info, gradient in run.gradients()}
    goes_on = any(CASES[number][1] == model for number in CURVES)
    curve = Run(ALONE.config(model, OPTIMIZER)).curve() if goes_on else [loss]
    return {"curve": curve, "gradients": gradients}


def piece_of(whole: Tensor, info: ParamInfo, mesh: Mesh) -> Tensor:
    """What this rank holds of a whole gradient; a vocabulary padded further has zeros there."""
    padding = info.full_shape[0] - whole.shape[0]
    if padding:
        whole = functional.pad(whole, (0, 0, 0, padding))
    return shard(whole, info, mesh.tensor.rank, mesh.tensor.size)


def relative_error(got: Tensor, whole: Tensor, info: ParamInfo, mesh: Mesh) -> float:
    """The largest difference, in parts of the whole gradient's largest element."""
    wanted = piece_of(whole, info, mesh)
    assert got.shape == wanted.shape, (info.name, got.shape, wanted.shape)
    return float((got - wanted).abs().max() / whole.abs().max())


def every_layout(place: Place) -> None:
    if place.rank < len(MODELS):
        model = list(MODELS)[place.rank]
        torch.save(of_one_process(model), place.folder / f"{model}.pt")
    with place.world("all are there", RANKS):
        references = {model: alone(place.folder, model)["gradients"] for model in MODELS}
    for number, (layout, model) in enumerate(CASES):
        with place.world(NAMES[number], layout.ranks) as taking_part:
            if not taking_part:
                continue
            run = Run(layout.config(model, OPTIMIZER))
            loss = run.forward_backward(0)
            errors = {
                info.name: relative_error(gradient, references[model][info.name], info, run.mesh)
                for info, gradient in run.gradients()
            }
            curve = run.curve() if number in CURVES else [loss]
            seen = {"errors": errors, "curve": curve}
            torch.save(seen, place.folder / f"{number}-{place.rank}.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every rank of every layout has written."""
    made = tmp_path_factory.mktemp("layouts")
    run_ranks(every_layout, RANKS, made, deadline_s=1000)
    return made


def alone(folder: Path, model: str) -> dict[str, Any]:
    seen: dict[str, Any] = torch.load(folder / f"{model}.pt", weights_only=True)
    return seen


def ranks_of(folder: Path, number: int) -> list[dict[str, Any]]:
    return [
        torch.load(folder / f"{number}-{rank}.pt", weights_only=True)
        for rank in range(CASES[number][0].ranks)
    ]


def losses_of(ranks: list[dict[str, Any]], step: int) -> float:
    """The mean over the data-parallel ranks; tensor ranks have the same number."""
    seen: list[float] = [r["curve"][step] for r in ranks if r["curve"][step] is not None]
    return sum(seen) / len(seen)


# The first test to run waits for all layouts.
pytestmark = pytest.mark.timeout(1020)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(CASES)), ids=NAMES)
def test_one_step_has_the_loss_and_every_gradient_of_one_process(folder: Path, number: int) -> None:
    reference = alone(folder, CASES[number][1])
    ranks = ranks_of(folder, number)
    assert losses_of(ranks, 0) == pytest.approx(reference["curve"][0], rel=TOLERANCE)
    compared: set[str] = set()
    for rank, seen in enumerate(ranks):
        wrong = {n: error for n, error in seen["errors"].items() if not error <= TOLERANCE}
        assert not wrong, f"rank {rank}"
        compared |= seen["errors"].keys()
    assert compared == set(reference["gradients"])


@pytest.mark.long
@pytest.mark.parametrize("number", CURVES, ids=[NAMES[number] for number in CURVES])
def test_fifty_steps_on_real_text_have_the_losses_of_one_process(folder: Path, number: int) -> None:
    curve = alone(folder, CASES[number][1])["curve"]
    assert curve[-1] < curve[0] - 1, "it has learned something"
    ranks = ranks_of(folder, number)
    for step, expected in enumerate(curve):
        assert losses_of(ranks, step) == pytest.approx(expected, abs=CURVE_TOLERANCE), step
