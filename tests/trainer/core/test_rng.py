"""Random streams: who shares them, what a fork leaves alone, and that a restored one goes on."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from relkit.checkpoint import rng_state
from relkit.checkpoint.rng_state import RngState
from relkit.trainer.core import rng
from relkit.trainer.core.mesh import Group, Mesh


def place(*, tensor: int = 0, pipeline: int = 0, data: int = 0) -> Mesh:
    """A rank of a TP2 x PP2 x DP2 world; nothing here communicates."""
    alone = Group(None, (0,), 0, 1)
    return Mesh(
        world=alone,
        tensor=Group(None, (0, 1), tensor, 2),
        pipeline=Group(None, (0, 1), pipeline, 2),
        data=Group(None, (0, 1), data, 2),
        expert=alone,
        expert_data=alone,
        embedding=alone,
        device=torch.device("cpu"),
    )


def draw() -> tuple[float, ...]:
    """The next number of each stream."""
    with rng.fork():
        inside = torch.rand(()).item()
    return random.random(), float(np.random.rand()), torch.rand(()).item(), inside  # noqa: S311


def first_numbers(mesh: Mesh) -> tuple[float, ...]:
    rng.seed_all(1234, mesh)
    return draw()


def test_data_ranks_share_every_stream() -> None:
    assert first_numbers(place(data=0)) == first_numbers(place(data=1))


def test_tensor_ranks_share_all_but_the_region() -> None:
    first, second = first_numbers(place(tensor=0)), first_numbers(place(tensor=1))
    assert first[:3] == second[:3]
    assert first[3] != second[3]


def test_stages_share_nothing() -> None:
    first, second = first_numbers(place(pipeline=0)), first_numbers(place(pipeline=1))
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_the_seeds_are_megatrons() -> None:
    rng.seed_all(1234, place(tensor=1, pipeline=1))
    outside = torch.rand(4)
    with rng.fork():
        inside = torch.rand(4)
    assert torch.equal(outside, torch.rand(4, generator=torch.Generator().manual_seed(1334)))
    seed = 1334 + 2718 + 1
    assert torch.equal(inside, torch.rand(4, generator=torch.Generator().manual_seed(seed)))


def test_a_fork_leaves_the_default_stream_alone_and_goes_on_where_the_last_one_ended() -> None:
    rng.seed_all(7, place())
    outside = torch.rand(4)
    with rng.fork():
        inside = torch.rand(4)
    rng.seed_all(7, place())
    with rng.fork():
        halves = [torch.rand(2)]
    with suppress(ZeroDivisionError), rng.fork():
        halves.append(torch.rand(2))
        raise ZeroDivisionError
    assert torch.equal(torch.cat(halves), inside)
    assert torch.equal(torch.rand(4), outside)


def test_restored_streams_go_on_with_the_same_numbers(tmp_path: Path) -> None:
    rng.seed_all(99, place(tensor=1))
    draw()
    np.random.randn()  # leaves a second Gaussian behind
    state = rng_state.capture()
    assert state == rng_state.capture()
    wanted = draw(), float(np.random.randn())
    assert state != rng_state.capture()

    torch.save(state.to_plain(), tmp_path / "rng.pt")
    loaded = RngState.from_plain(torch.load(tmp_path / "rng.pt", weights_only=True))
    assert loaded == state
    rng.seed_all(1, place())
    rng_state.restore(loaded)
    assert (draw(), float(np.random.randn())) == wanted
    with pytest.raises(KeyError):
        RngState.from_plain({"random_rng_state": random.getstate()})


def test_a_captured_state_does_not_move_when_the_streams_do() -> None:
    rng.seed_all(5, place())
    state = rng_state.capture()
    wanted = draw()
    draw()
    rng_state.restore(state)
    assert draw() == wanted
    rng_state.restore(state)
    assert draw() == wanted


def test_forked_modules_draw_from_the_region_only_while_training() -> None:
    rng.seed_all(3, place())
    dropout = rng.ForkedRng(nn.Dropout(0.5))
    state = rng_state.capture()
    mask = dropout(torch.ones(64))
    moved = rng_state.capture()
    assert moved.torch == state.torch
    assert moved.tracker != state.tracker
    with rng.fork():
        pass
    assert rng_state.capture() == moved
    assert set(mask.tolist()) == {0.0, 2.0}
    assert dropout.eval()(torch.ones(64)).eq(1).all()
    assert rng_state.capture() == moved


def test_streams_are_under_the_keys_that_megatron_reads() -> None:
    plain = rng_state.capture().to_plain()
    assert plain.keys() == {
        "random_rng_state", "np_rng_state", "torch_rng_state", "cuda_rng_state",
        "rng_tracker_states",
    }  # fmt: skip
    assert plain["rng_tracker_states"].keys() == {"model-parallel-rng"}
    assert RngState.from_plain(plain).to_plain().keys() == plain.keys()
