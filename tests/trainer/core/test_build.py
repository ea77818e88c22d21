"""What a rank builds of the model, and the loss of the last stage."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from relkit.trainer.config.config import ParallelConfig, TrainerConfig
from relkit.trainer.core.build import build_model, loss_function, stage_layers
from relkit.trainer.core.mesh import Group, Mesh, build_mesh
from relkit.trainer.core.pipeline import run_step
from relkit.trainer.data.samples import MicroBatch
from tests.patience import PATIENCE
from tests.trainer.layouts import ALONE, MODELS, micro_batches

_ONE_STEP = """
import sys
from relkit.trainer.config.config import OptimizerConfig
from tests.trainer.core.test_layouts import ALONE, Run
for model in sys.argv[1:]:
    run = Run(ALONE.config(model, OptimizerConfig()))
    loss = run.forward_backward(0)
    run.optimizer.update(run.optimizer.prepare(), 1e-3)
    print(loss > 0, "torch._dynamo" in sys.modules)
"""


def alone(model: str = "gpt2") -> tuple[TrainerConfig, Mesh]:
    config = ALONE.config(model)
    return config, build_mesh(config.parallel, config.model, backend="gloo")


def of_pipeline(model: str, rank: int, size: int, virtual: int) -> tuple[TrainerConfig, Mesh]:
    """A rank's mesh as it would be; nothing is sent over it."""
    config, mesh = alone(model)
    parallel = ParallelConfig(
        pipeline_model_parallel_size=size, virtual_pipeline_model_parallel_size=virtual
    )
    pipeline = Group(None, tuple(range(size)), rank, size)
    return replace(config, parallel=parallel), replace(mesh, pipeline=pipeline)


def gradients(model: str, batches: list[MicroBatch], grad_scale: float) -> dict[str, Tensor]:
    config, mesh = alone(model)
    chunks, _ = build_model(config, mesh)
    run_step(chunks, batches, loss_function(config, mesh), mesh, config, grad_scale=grad_scale)
    found = {}
    for name, parameter in chunks[0].named_parameters():
        assert parameter.grad is not None
        found[name] = parameter.grad
    return found


def test_every_layer_is_on_one_stage_in_the_order_of_a_micro_batch() -> None:
    config, _ = of_pipeline("gpt2", 0, 2, 2)
    met = [list(stage_layers(config, rank, chunk)) for chunk in (0, 1) for rank in (0, 1)]
    assert met == [[0], [1], [2], [3]]


@pytest.mark.parametrize("model", MODELS)
def test_the_stages_together_are_the_model_with_the_same_bits(model: str) -> None:
    config, mesh = alone(model)
    (whole,), _ = build_model(config, mesh)
    wanted = dict(whole.named_parameters())
    seen: set[str] = set()
    for rank in (0, 1):
        chunks, infos = build_model(*of_pipeline(model, rank, 2, 2))
        for chunk in chunks:
            for name, parameter in chunk.named_parameters():
                info = infos[name]
                assert torch.equal(parameter, wanted[info.name])
                assert info.tied_copy == (name == "output_layer.weight" and model == "gpt2")
                assert info.name not in seen or info.tied_copy
                seen.add(info.name)
    assert seen == wanted.keys()


def test_a_stage_in_the_middle_has_neither_embedding_nor_head() -> None:
    chunks, _ = build_model(*of_pipeline("llama", 1, 2, 2))
    middle, last = chunks
    assert middle.embedding is None
    assert middle.output_layer is None
    assert middle.decoder.final_layernorm is None
    assert last.embedding is None
    assert last.output_layer is not None
    assert last.decoder.final_layernorm is not None


def test_the_loss_is_the_cross_entropy_of_the_unpadded_vocabulary() -> None:
    config, mesh = alone()
    rows = config.model.padded_vocab_size(1)
    assert rows > config.model.vocab_size
    (batch,) = micro_batches(0, rank=0, ranks=4)
    logits = torch.randn(*batch.tokens.shape, rows, requires_grad=True)
    kept = logits.detach()[..., : config.model.vocab_size].clone().requires_grad_()
    loss = loss_function(config, mesh)(logits * 1, batch)
    per_token = functional.cross_entropy(kept.transpose(1, 2), batch.labels, reduction="none")
    expected = (per_token * batch.loss_mask).sum() / batch.loss_mask.sum()
    assert batch.loss_mask.sum() < batch.loss_mask.numel()
    torch.testing.assert_close(loss, expected)
    (got,) = torch.autograd.grad(loss, logits)
    (wanted,) = torch.autograd.grad(expected, kept)
    torch.testing.assert_close(got[..., : config.model.vocab_size], wanted)
    assert not got[..., config.model.vocab_size :].any()


def test_a_micro_batch_without_any_label_has_no_loss_and_no_gradient() -> None:
    (batch,) = micro_batches(0, rank=0, ranks=4)
    nothing = replace(batch, loss_mask=torch.zeros_like(batch.loss_mask))
    assert not any(gradient.any() for gradient in gradients("gpt2", [nothing], 1.0).values())


@pytest.mark.parametrize("model", MODELS)
def test_gradients_grow_with_the_scale_also_those_of_load_balancing(model: str) -> None:
    batches = micro_batches(0, rank=0, ranks=4)
    once = gradients(model, batches, 1.0)
    scaled = gradients(model, batches, 1024.0)
    twice = gradients(model, batches * 2, 0.5)
    for name, gradient in once.items():
        assert torch.equal(scaled[name], gradient * 1024), name
        torch.testing.assert_close(twice[name], gradient, msg=name)


@pytest.mark.long
def test_a_step_waits_for_no_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ONE_STEP, *MODELS], cwd=Path(__file__).parents[3],
        capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.stdout == "True False\n" * len(MODELS), done.stderr
