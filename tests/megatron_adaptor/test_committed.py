"""What is kept of a step is of that step, whatever the loop does since."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

with pytest.MonkeyPatch.context() as patch:
    # The import looks at Megatron; the real one takes half a minute, and is not asked here.
    patch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    from relkit.megatron_adaptor import committed
    from relkit.megatron_adaptor.buffers import Buffers
    from relkit.megatron_adaptor.committed import Committed
    from relkit.megatron_adaptor.training_run import TrainingRun


class Router(nn.Module):
    """As megatron-core's, with a bias that moves once gradients are reduced."""

    expert_bias: torch.Tensor
    local_tokens_per_expert: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("expert_bias", torch.zeros(4))
        self.register_buffer("local_tokens_per_expert", torch.zeros(4), persistent=False)
        self.register_buffer("absent", None)


class Tracker:
    """megatron-core's for CUDA graphs, which gives its generators away as they are."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def get_states(self) -> dict[str, Any]:
        return {"model-parallel-rng": self.generator, "plain": torch.get_rng_state()}


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """In the place of megatron-core's."""
    made, core = Tracker(), ModuleType("megatron.core")
    core.tensor_parallel = Namespace(get_cuda_rng_tracker=lambda: made)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core", core)
    monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
    return made


def kept_of(model: list[nn.Module]) -> Committed:
    """A step of a model without a loss scaler."""
    optimizer = Namespace(chained_optimizers=[])
    return committed.taken(
        optimizer, Buffers(model), iteration=2, samples=8, scheduler_steps=8, flops=1.0
    )


@pytest.mark.usefixtures("tracker")
def test_the_bias_of_experts_goes_back_to_the_step_that_is_saved() -> None:
    """It moves before the update; the step that is made again would move it twice."""
    router = Router()
    model: list[nn.Module] = [nn.Sequential(nn.Linear(2, 2)), nn.Sequential(router)]
    router.expert_bias += 1
    kept = kept_of(model)
    router.expert_bias += 1
    router.local_tokens_per_expert += 5
    scheduler = Namespace(num_steps=0, step=lambda _increment: None)
    args = Namespace(iteration=0, consumed_train_samples=0)
    optimizer = Namespace(chained_optimizers=[])
    committed.put_back(kept, args, Buffers(model), optimizer, scheduler)
    assert router.expert_bias.tolist() == [1.0] * 4
    assert router.local_tokens_per_expert.tolist() == [5.0] * 4
    assert (args.iteration, args.consumed_train_samples, scheduler.num_steps) == (2, 8, 8)


def test_streams_of_a_tracker_for_graphs_stay_where_they_were(tracker: Tracker) -> None:
    states = kept_of([]).streams["rng_tracker_states"]
    before = states["model-parallel-rng"].get_state()
    torch.rand(9, generator=tracker.generator)
    assert torch.equal(states["model-parallel-rng"].get_state(), before)
    assert isinstance(states["plain"], torch.Tensor)


@pytest.mark.usefixtures("tracker")
def test_what_an_evaluation_drew_is_drawn_in_the_step_that_is_saved() -> None:
    run = object.__new__(TrainingRun)
    run._kept = kept_of([])
    run._faults = Namespace(at=lambda *_: None)  # type: ignore[assignment]
    run._session = Namespace(state=Namespace(phase=lambda _: None))  # type: ignore[assignment]
    torch.rand(3)
    run.step_begins(2)
    assert run._kept.iteration == 2
    assert torch.equal(run._kept.streams["torch_rng_state"], torch.get_rng_state())
