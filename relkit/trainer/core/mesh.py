"""Which ranks work together: turns the degrees of `ParallelConfig` into groups, or refuses them.

A rank's number has the tensor coordinate as its fastest part, then data, then pipeline:
`rank = tensor + T * (data + D * pipeline)`. Expert parallelism cuts the data coordinate:
`data = expert + E * expert_data`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from relkit.errors import UsageProblem
from relkit.trainer.config.config import ModelConfig, ParallelConfig


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate, as one of them sees it.

    Args:
        process_group: None where `size` is 1. To torch, None means all ranks of the world, so never
            hand it on unchecked: `collectives.py` has calls that cost nothing for 1.
        ranks: numbers in the world, ascending.
        rank: this process's index in `ranks`.
        size: how many there are.
    """

    process_group: dist.ProcessGroup | None
    ranks: tuple[int, ...]
    rank: int
    size: int

    @property
    def global_rank(self) -> int:
        """This process's number in the world."""
        return self.ranks[self.rank]


@dataclass(frozen=True, slots=True)
class Mesh:
    """Every group of this rank.

    Args:
        world: all ranks.
        tensor: share each layer's matrices.
        pipeline: hold the stages of one model, first stage first.
        data: hold the same parameters (the experts' aside) and see other samples.
        expert: the part of `data` over which a layer's experts are spread.
        expert_data: hold the same experts; reduce their gradients.
        embedding: the first and the last stage, which both hold a tied word embedding; this rank
            alone where it is neither of them, or where there is one stage only.
        device: where this rank's tensors live.
        p2p_groups: the pipeline's ranks once more for each direction of travel: (kind, wrap) of a
            `relkit.trainer.core.schedule.P2PEdge`; empty without a pipeline.
    """

    world: Group
    tensor: Group
    pipeline: Group
    data: Group
    expert: Group
    expert_data: Group
    embedding: Group
    device: torch.device
    p2p_groups: Mapping[tuple[str, bool], dist.ProcessGroup] = field(default_factory=dict)

    @property
    def is_first_stage(self) -> bool:
        """Whether this rank holds the word embedding."""
        return self.pipeline.rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank holds the head."""
        return self.pipeline.rank == self.pipeline.size - 1


def check_degrees(parallel: ParallelConfig, model: ModelConfig, world_size: int) -> None:
    """Refuse degrees that cannot be, before any process group is made.

    Args:
        world_size: ranks of the whole job.

    Raises:
        UsageProblem: a degree divides neither the ranks nor what it cuts; the sentence names both.
    """
    tensor = parallel.tensor_model_parallel_size
    pipeline = parallel.pipeline_model_parallel_size
    expert = parallel.expert_model_parallel_size
    if world_size % (tensor * pipeline):
        raise UsageProblem(
            f"{world_size} rank(s) do not divide by tensor_model_parallel_size {tensor} x"
            f" pipeline_model_parallel_size {pipeline}",
            next_step=f"Start a multiple of {tensor * pipeline} ranks, or lower the degrees.",
        )
    data = world_size // (tensor * pipeline)
    of_tensor = "parallel_config.tensor_model_parallel_size"
    _must_divide("model_config.num_attention_heads", model.num_attention_heads, of_tensor, tensor)
    _must_divide("model_config.num_query_groups", model.query_groups, of_tensor, tensor)
    _must_divide("model_config.ffn_hidden_size", model.ffn_size, of_tensor, tensor)
    if parallel.sequence_parallel:
        _must_divide("model_config.seq_length", model.seq_length, of_tensor, tensor)
    stages = pipeline * parallel.virtual_stages
    of_stages = "parallel_config.pipeline_model_parallel_size"
    if parallel.virtual_stages > 1:
        of_stages += " x virtual_pipeline_model_parallel_size"
    _must_divide("model_config.num_layers", model.num_layers, of_stages, stages)
    of_expert = "parallel_config.expert_model_parallel_size"
    if expert > 1 and model.num_moe_experts is None:
        raise UsageProblem(
            f"{of_expert} is {expert}, but the model has no experts",
            next_step="Set model_config.num_moe_experts, or the degree to 1.",
        )
    _must_divide("the data-parallel size", data, of_expert, expert)
    if model.num_moe_experts is not None:
        _must_divide("model_config.num_moe_experts", model.num_moe_experts, of_expert, expert)


def build_mesh(parallel: ParallelConfig, model: ModelConfig, *, backend: str) -> Mesh:
    """Make the groups of this rank; every rank of the world must call it.

    Args:
        backend: "gloo" (tensors in main memory) or "nccl" (on the GPU numbered LOCAL_RANK).

    Returns:
        The mesh; without an initialised `torch.distributed`, that of a world of one.

    Raises:
        UsageProblem: see `check_degrees`.
    """
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    check_degrees(parallel, model, world_size)
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world_size == 1:
        alone = _alone(0)
        return Mesh(alone, alone, alone, alone, alone, alone, alone, device)

    me = dist.get_rank()
    tensor = parallel.tensor_model_parallel_size
    pipeline = parallel.pipeline_model_parallel_size
    expert = parallel.expert_model_parallel_size
    data = world_size // (tensor * pipeline)
    degrees = {"pipeline": pipeline, "data": data, "tensor": tensor}
    cut = {name: size for name, size in degrees.items() if size > 1}
    device_mesh = init_device_mesh(device.type, tuple(cut.values()), mesh_dim_names=tuple(cut))
    plain = {
        name: _group(device_mesh.get_group(name), me) if name in cut else _alone(me)
        for name in degrees
    }

    grid = torch.arange(world_size).view(pipeline, data // expert, expert, tensor)
    expert_group, expert_data_group = _alone(me), plain["data"]
    if expert > 1:
        expert_group = _one_of(grid.movedim(2, -1).reshape(-1, expert), me)
        expert_data_group = _one_of(grid.movedim(1, -1).reshape(-1, data // expert), me)
    embedding_group = _alone(me)
    if pipeline > 1 and not model.untie_embeddings_and_output_weights:
        ends = torch.stack((grid[0].flatten(), grid[-1].flatten()), dim=1)
        embedding_group = _one_of(ends, me)
    p2p_groups = {}
    if pipeline > 1:
        pipelines = grid.view(pipeline, -1).T
        for wrap in (False, True) if parallel.virtual_stages > 1 else (False,):
            for kind in ("F", "B"):
                p2p_group = _one_of(pipelines, me).process_group
                assert p2p_group is not None
                p2p_groups[kind, wrap] = p2p_group
    return Mesh(
        world=_group(dist.group.WORLD, me),
        tensor=plain["tensor"],
        pipeline=plain["pipeline"],
        data=plain["data"],
        expert=expert_group,
        expert_data=expert_data_group,
        embedding=embedding_group,
        device=device,
        p2p_groups=p2p_groups,
    )


def _must_divide(what: str, value: int, degree_name: str, degree: int) -> None:
    if value % degree:
        raise UsageProblem(
            f"{what} {value} does not divide by {degree_name} {degree}",
            next_step="Change one of the two so that every rank gets an equal part.",
        )


def _alone(me: int) -> Group:
    return Group(None, (me,), 0, 1)


def _group(process_group: dist.ProcessGroup | None, me: int) -> Group:
    assert process_group is not None
    ranks = tuple(dist.get_process_group_ranks(process_group))
    return Group(process_group, ranks, ranks.index(me), len(ranks))


def _one_of(rows: Iterable[torch.Tensor], me: int) -> Group:
    """The group of the row that holds this rank; every rank makes all of them, in one order."""
    mine = _alone(me)
    for row in rows:
        ranks = row.tolist()
        if len(ranks) == 1:
            continue
        made = dist.new_group(ranks)
        if me in ranks:
            mine = _group(made, me)
    return mine
