"""Pipelines of real processes, on a model small enough to see every number: a chain of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from relkit.errors import UsageProblem
from relkit.trainer.config.config import ModelConfig, ParallelConfig, TrainerConfig, TrainingConfig
from relkit.trainer.core.mesh import Mesh, build_mesh
from relkit.trainer.core.pipeline import run_step
from relkit.trainer.data.samples import MicroBatch
from tests.trainer.processes import Place, run_ranks

LAYERS = 12
HIDDEN = 6
GRAD_SCALE = 0.25


@dataclass(frozen=True)
class Case:
    """One pipeline: its ranks, chunks a rank, and micro-batches a step."""

    size: int
    virtual: int
    micro_batches: int

    def config(self) -> TrainerConfig:
        return TrainerConfig(
            training=TrainingConfig(training_iters=1),
            model=ModelConfig(
                num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=2, seq_length=4
            ),
            parallel=ParallelConfig(
                pipeline_model_parallel_size=self.size,
                virtual_pipeline_model_parallel_size=self.virtual if self.size > 1 else None,
            ),
        )


CASES = (
    Case(2, 1, 1),
    Case(2, 1, 5),
    Case(2, 2, 4),
    Case(2, 3, 2),
    Case(3, 1, 2),
    Case(3, 1, 7),
    Case(3, 2, 6),
    Case(4, 1, 16),
    Case(4, 3, 8),
)
"""Fewer micro-batches than stages, as many, many more; wires that wrap round 2, 3 and 4 ranks."""


class Layer(nn.Module):
    """One layer of the chain; the first one makes its input of tokens."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.first = number == 0
        self.linear = nn.Linear(HIDDEN, HIDDEN)
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x[:, :, None] * torch.linspace(-0.1, 0.1, HIDDEN)
        return x + torch.tanh(self.linear(x))


def chunks_of(config: TrainerConfig, rank: int) -> list[nn.Sequential]:
    size, virtual = config.parallel.pipeline_model_parallel_size, config.parallel.virtual_stages
    per_stage = LAYERS // (size * virtual)
    firsts = [(chunk * size + rank) * per_stage for chunk in range(virtual)]
    return [nn.Sequential(*(Layer(n) for n in range(first, first + per_stage))) for first in firsts]


def micro_batches_of(count: int) -> list[MicroBatch]:
    generator = torch.Generator().manual_seed(count)
    made = []
    for _ in range(count):
        tokens = torch.randint(9, (2, 5), generator=generator)
        made.append(MicroBatch(tokens[:, :-1], tokens[:, 1:], torch.ones(2, 4)))
    return made


def loss_of(output: Tensor, micro_batch: MicroBatch) -> Tensor:
    return (output.mean(dim=-1) - micro_batch.labels).square().mean()


def step(
    config: TrainerConfig, mesh: Mesh, count: int
) -> tuple[list[float], list[float], list[nn.Sequential]]:
    """Losses of an evaluation and of a step, and the chunks with their gradients."""
    chunks = chunks_of(config, mesh.pipeline.rank)
    batches = micro_batches_of(count)
    evaluated = run_step(
        chunks, batches, loss_of, mesh, config, grad_scale=GRAD_SCALE, forward_only=True
    )
    assert all(p.grad is None for chunk in chunks for p in chunk.parameters())
    losses = run_step(chunks, batches, loss_of, mesh, config, grad_scale=GRAD_SCALE)
    return [x.item() for x in evaluated], [x.item() for x in losses], chunks


def every_case(place: Place) -> None:
    for number, case in enumerate(CASES):
        with place.world(f"case {number}", case.size) as taking_part:
            if not taking_part:
                continue
            config = case.config()
            mesh = build_mesh(config.parallel, config.model, backend="gloo")
            evaluated, losses, chunks = step(config, mesh, case.micro_batches)
            gradients = [[p.grad for p in chunk.parameters()] for chunk in chunks]
            torch.save(
                {"evaluated": evaluated, "losses": losses, "gradients": gradients},
                place.folder / f"{number}-{place.rank}.pt",
            )


def of_one_process(micro_batches: int) -> tuple[list[float], Sequence[Layer]]:
    config = Case(1, 1, micro_batches).config()
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    evaluated, losses, (chunk,) = step(config, mesh, micro_batches)
    assert evaluated == losses
    return losses, [layer for layer in chunk if isinstance(layer, Layer)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every rank of every case has written."""
    made = tmp_path_factory.mktemp("pipelines")
    run_ranks(every_case, max(case.size for case in CASES), made, deadline_s=100)
    return made


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", range(len(CASES)), ids=[str(case) for case in CASES])
def test_a_pipeline_computes_what_one_process_does(folder: Path, number: int) -> None:
    case = CASES[number]
    losses, layers = of_one_process(case.micro_batches)
    per_stage = LAYERS // (case.size * case.virtual)
    for rank in range(case.size):
        seen = torch.load(folder / f"{number}-{rank}.pt", weights_only=True)
        expected_losses = losses if rank == case.size - 1 else []
        assert seen["losses"] == expected_losses
        assert seen["evaluated"] == expected_losses
        for chunk, gradients in enumerate(seen["gradients"]):
            first = (chunk * case.size + rank) * per_stage
            expected = [
                p.grad for n in range(first, first + per_stage) for p in layers[n].parameters()
            ]
            assert len(gradients) == len(expected)
            for got, wanted in zip(gradients, expected, strict=True):
                # Micro-batches meet a layer in one order under every schedule: the bits are equal.
                assert wanted is not None
                assert torch.equal(got, wanted)


def test_one_process_accumulates_what_one_large_backward_gives() -> None:
    losses, layers = of_one_process(3)
    chain = nn.Sequential(*(Layer(n) for n in range(LAYERS)))
    total = torch.stack([loss_of(chain(b.tokens), b) for b in micro_batches_of(3)])
    assert losses == pytest.approx(total.tolist(), rel=1e-6)
    (total.sum() * GRAD_SCALE).backward()  # type: ignore[no-untyped-call]
    for layer, again in zip(layers, chain, strict=True):
        for got, wanted in zip(layer.parameters(), again.parameters(), strict=True):
            assert got.grad is not None
            torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-5, atol=1e-6)


def test_a_step_that_no_schedule_exists_for_is_refused() -> None:
    config = Case(1, 1, 1).config()
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    with pytest.raises(UsageProblem, match="at least 1"):
        run_step(chunks_of(config, 0), [], loss_of, mesh, config, grad_scale=1.0)
