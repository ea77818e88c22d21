"""Which ranks hold which part of what a Megatron program saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from relkit.flash_checkpoint.megatron.native import Megatron
from relkit.megatron_adaptor.fit import DoesNotFit
from relkit.ttp.replicas import ReplicaMap

_PLAIN = ("FP32Optimizer", "Float16OptimizerWithFloat16Params")
_SHARDED = "DistributedOptimizer"
# By the names of Megatron's arguments: what its own files in torch's format, or a single rank's
# memory, do not have.
_REFUSED = {
    "data_parallel_random_init": "--data-parallel-random-init",
    "use_torch_fsdp2": "--use-torch-fsdp2",
    "use_custom_fsdp": "--use-custom-fsdp",
    "use_megatron_fsdp": "--use-megatron-fsdp",
    "optimizer_cpu_offload": "--optimizer-cpu-offload",
    "use_precision_aware_optimizer": "--use-precision-aware-optimizer",
    "overlap_param_gather_with_optimizer_step": "--overlap-param-gather-with-optimizer-step",
    "fp8_param_gather": "--fp8-param-gather",
    "fp4_param_gather": "--fp4-param-gather",
    "no_save_optim": "--no-save-optim",
    "no_save_rng": "--no-save-rng",
    "perform_rl_step": "--perform-rl-step",
    # Weights change once more behind the optimizer's step.
    "qk_clip": "--qk-clip",
    "vision_pretraining": "--vision-pretraining",
    # The loader's position is in a file of its own, which Megatron alone writes.
    "dataloader_save": "--dataloader-save",
}


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank holds.

    Args:
        group: of the ranks whose parts are one file; by the file's name.
        shard: which of `shards` parts it has; a plain optimizer has one.
    """

    group: str
    shard: int
    shards: int


def parts(optimizer: Any) -> list[Any]:  # noqa: ANN401
    """megatron-core's optimizers in a chain, without those that have nothing to do."""
    chained = getattr(optimizer, "chained_optimizers", [optimizer])
    return [part for part in chained if not getattr(part, "is_stub_optimizer", False)]


def sharded(optimizer: Any) -> Any | None:  # noqa: ANN401
    """The distributed optimizer; None where each rank holds all of its file."""
    return next((part for part in parts(optimizer) if type(part).__name__ == _SHARDED), None)


def place(args: Any, megatron: Megatron, optimizer: Any) -> Place:  # noqa: ANN401
    """This rank's.

    Raises:
        DoesNotFit: with these arguments, survivors cannot save a step by themselves.
    """
    for name, flag in _REFUSED.items():
        if getattr(args, name, False):
            raise DoesNotFit(f"try-to-persist does not go with {flag}")
    if getattr(args, "fp8", None) and getattr(args, "fp8_recipe", "delayed") == "delayed":
        raise DoesNotFit(
            "try-to-persist does not go with --fp8-recipe delayed, whose scales move within a step"
        )
    kinds = [type(part).__name__ for part in parts(optimizer)]
    for kind in kinds:
        if kind not in (*_PLAIN, _SHARDED):
            raise DoesNotFit(f"try-to-persist does not know the optimizer {kind}")
    group = f"{megatron.file_of_rank(0).rpartition('/')[0]}{_expert_tensor_place()}"
    distributed = sharded(optimizer)
    if distributed is None:
        return Place(group, 0, 1)
    if len(kinds) > 1:
        raise DoesNotFit(
            "try-to-persist does not go with --use-distributed-optimizer where experts are spread"
            " over ranks (--expert-model-parallel-size); leave the former out"
        )
    if distributed.data_parallel_group_gloo is None:
        raise DoesNotFit(
            "try-to-persist does not go with --disable-gloo-process-groups, which Megatron loads"
            " the shards of --ckpt-format torch with"
        )
    data_parallel = distributed.data_parallel_group
    return Place(group, dist.get_rank(data_parallel), dist.get_world_size(data_parallel))


def _expert_tensor_place() -> str:
    """Experts may be cut in another way than all else, which the files' names do not tell."""
    from megatron.core import parallel_state

    size = getattr(parallel_state, "get_expert_tensor_parallel_world_size", lambda: None)()
    same = parallel_state.get_tensor_model_parallel_world_size()
    if size in (None, same):
        return ""
    return f" etp{parallel_state.get_expert_tensor_parallel_rank()}"


def replica_map(places: Sequence[Place], rank: int) -> ReplicaMap:
    """Who holds the parts of the file that this rank's place is in.

    Args:
        places: of all ranks.

    Raises:
        DoesNotFit: two files would have one name, or a part of one is nobody's.
    """
    mine = places[rank]
    ranks = tuple(r for r, other in enumerate(places) if other.group == mine.group)
    files = {other.group.partition(" ")[0] for other in places}
    if len(files) < len({other.group for other in places}):
        raise DoesNotFit("Megatron gives ranks with different experts files of one name")
    holders = tuple(
        tuple(r for r in ranks if places[r].shard == shard) for shard in range(mine.shards)
    )
    if not all(holders) or any(places[r].shards != mine.shards for r in ranks):
        raise DoesNotFit(f"shards of {mine.group} are not known")
    return ReplicaMap(mine.group, ranks, holders)
