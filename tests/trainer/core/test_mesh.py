"""Degrees become the right groups on every rank, or are refused by the name of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from relkit.errors import UsageProblem
from relkit.trainer.config.config import ModelConfig, ParallelConfig
from relkit.trainer.core.mesh import Group, Mesh, build_mesh, check_degrees

MODEL = ModelConfig(
    num_layers=24, hidden_size=96, num_attention_heads=12, seq_length=24, num_moe_experts=12
)
GROUPS = ("world", "tensor", "pipeline", "data", "expert", "expert_data", "embedding")

LAYOUTS = [
    (world, tensor, pipeline, expert)
    for world in (1, 2, 4, 8, 12)
    for tensor, pipeline, expert in product((1, 2, 3, 4), (1, 2, 4), (1, 2, 3))
    if world % (tensor * pipeline) == 0 and world // (tensor * pipeline) % expert == 0
]


def degrees(tensor: int = 1, pipeline: int = 1, expert: int = 1) -> ParallelConfig:
    return ParallelConfig(
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        expert_model_parallel_size=expert,
    )


@contextmanager
def world_of(size: int, rank: int) -> Iterator[None]:
    """A world whose other ranks are imagined: groups are made, nothing is sent."""
    if size == 1:
        yield
        return
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def meshes(world: int, parallel: ParallelConfig, model: ModelConfig = MODEL) -> list[Mesh]:
    """What each rank of the world gets."""
    made = []
    for rank in range(world):
        with world_of(world, rank):
            made.append(build_mesh(parallel, model, backend="gloo"))
    return made


@pytest.mark.parametrize(("world", "tensor", "pipeline", "expert"), LAYOUTS)
def test_every_rank_is_where_its_number_says(
    world: int, tensor: int, pipeline: int, expert: int
) -> None:
    data = world // (tensor * pipeline)
    for rank, mesh in enumerate(meshes(world, degrees(tensor, pipeline, expert))):
        sizes = [getattr(mesh, name).size for name in GROUPS[:6]]
        assert sizes == [world, tensor, pipeline, data, expert, data // expert]
        assert rank == mesh.tensor.rank + tensor * (mesh.data.rank + data * mesh.pipeline.rank)
        assert mesh.data.rank == mesh.expert.rank + expert * mesh.expert_data.rank
        assert mesh.is_first_stage == (mesh.pipeline.rank == 0)
        assert mesh.is_last_stage == (mesh.pipeline.rank == pipeline - 1)
        assert mesh.device == torch.device("cpu")


@pytest.mark.parametrize(("world", "tensor", "pipeline", "expert"), LAYOUTS)
def test_groups_agree_between_their_ranks(
    world: int, tensor: int, pipeline: int, expert: int
) -> None:
    made = meshes(world, degrees(tensor, pipeline, expert))
    for name in GROUPS:
        for rank, mesh in enumerate(made):
            group: Group = getattr(mesh, name)
            assert group.global_rank == rank
            assert group.size == len(group.ranks)
            assert (group.process_group is None) == (group.size == 1)
            for index, member in enumerate(group.ranks):
                seen: Group = getattr(made[member], name)
                assert (seen.ranks, seen.rank) == (group.ranks, index)


def test_the_ends_of_a_pipeline_share_a_tied_embedding_only() -> None:
    tied = meshes(8, degrees(tensor=2, pipeline=4))
    assert [mesh.embedding.ranks for mesh in tied] == [
        (0, 6), (1, 7), (2,), (3,), (4,), (5,), (0, 6), (1, 7)
    ]  # fmt: skip
    untied = replace(MODEL, untie_embeddings_and_output_weights=True)
    for mesh in meshes(8, degrees(tensor=2, pipeline=4), untied):
        assert mesh.embedding.size == 1


def test_a_pipeline_has_a_wire_for_each_direction_of_travel() -> None:
    virtual = ParallelConfig(pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=3)
    straight = {("F", False), ("B", False)}
    assert all(set(mesh.p2p_groups) == straight for mesh in meshes(4, degrees(pipeline=2)))
    around = straight | {("F", True), ("B", True)}
    assert all(set(mesh.p2p_groups) == around for mesh in meshes(4, virtual))
    assert all(not mesh.p2p_groups for mesh in meshes(4, degrees(tensor=2)))


@pytest.mark.parametrize(
    ("world", "parallel", "model", "named"),
    [
        (6, degrees(tensor=4), {}, ("6 rank(s)", "tensor_model_parallel_size 4")),
        (4, degrees(tensor=2, pipeline=4), {}, ("4 rank(s)", "pipeline_model_parallel_size 4")),
        (
            8,
            degrees(tensor=8),
            {},
            ("num_attention_heads 12", "tensor_model_parallel_size 8"),
        ),
        (
            4,
            degrees(tensor=4),
            {"group_query_attention": True, "num_query_groups": 2},
            ("num_query_groups 2", "tensor_model_parallel_size 4"),
        ),
        (
            2,
            degrees(tensor=2),
            {"ffn_hidden_size": 101},
            ("ffn_hidden_size 101", "tensor_model_parallel_size 2"),
        ),
        (5, degrees(pipeline=5), {}, ("num_layers 24", "pipeline_model_parallel_size 5")),
        (
            4,
            ParallelConfig(pipeline_model_parallel_size=4, virtual_pipeline_model_parallel_size=5),
            {},
            ("num_layers 24", "virtual_pipeline_model_parallel_size 20"),
        ),
        (
            4,
            ParallelConfig(tensor_model_parallel_size=4, sequence_parallel=True),
            {"seq_length": 30},
            ("seq_length 30", "tensor_model_parallel_size 4"),
        ),
        (
            2,
            degrees(expert=2),
            {"num_moe_experts": None},
            ("expert_model_parallel_size is 2", "no experts"),
        ),
        (6, degrees(expert=4), {}, ("data-parallel size 6", "expert_model_parallel_size 4")),
        (
            10,
            degrees(expert=5),
            {},
            ("num_moe_experts 12", "expert_model_parallel_size 5"),
        ),
    ],
)
def test_degrees_that_cannot_be_are_refused_by_name(
    world: int, parallel: ParallelConfig, model: dict[str, object], named: tuple[str, ...]
) -> None:
    with pytest.raises(UsageProblem) as refused:
        check_degrees(parallel, replace(MODEL, **model), world)  # type: ignore[arg-type]
    assert all(part in str(refused.value) for part in named), str(refused.value)
    assert refused.value.next_step


def test_no_group_is_made_of_refused_degrees() -> None:
    with pytest.raises(UsageProblem, match=r"1 rank\(s\) do not divide"):
        build_mesh(degrees(tensor=2), MODEL, backend="gloo")
