"""What the survivors of a fault write: Megatron's own files, --ckpt-format torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import FileRecord
from relkit.flash_checkpoint.megatron.native import Megatron
from relkit.megatron_adaptor import committed, holders, shards
from relkit.megatron_adaptor.buffers import Buffers
from relkit.ttp.handlers import SaveRequest
from relkit.ttp.replicated import refuse_not_finite

_FACTS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "world_size",
    "data_parallel_size",
    "global_batch_size",
    "seq_length",
    "seed",
    "use_distributed_optimizer",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
)


class EmergencyFiles:
    """One rank's.

    Args:
        megatron: its functions and arguments.
        model, optimizer, scheduler: as its `train` gets them.
        buffers: of the model.
        group: name of the replica map that this rank is in.
    """

    def __init__(
        self,
        megatron: Megatron,
        model: Any,  # noqa: ANN401
        optimizer: Any,  # noqa: ANN401
        scheduler: Any,  # noqa: ANN401
        buffers: Buffers,
        group: str,
    ) -> None:
        self._megatron, self._model, self._buffers = megatron, model, buffers
        self._optimizer, self._scheduler, self._group = optimizer, scheduler, group

    def save(self, request: SaveRequest, kept: committed.Committed) -> list[FileRecord]:
        """This rank's part of an emergency save: shards for the writer, or the file.

        Args:
            kept: what else belongs to the step.
        """
        plan = next(group for group in request.plan.groups if group.group == self._group)
        distributed = holders.sharded(self._optimizer)
        sharded = None
        if distributed is not None and request.rank in plan.ranks:
            sharded = shards.gathered(distributed, request, plan)
        if request.rank != plan.writer:
            return []
        args = self._megatron.arguments
        committed.put_back(kept, args, self._buffers, self._optimizer, self._scheduler)
        return self._written(request, kept, sharded)

    def _written(
        self,
        request: SaveRequest,
        kept: committed.Committed,
        sharded: dict[Any, Any] | None,
    ) -> list[FileRecord]:
        checkpointing, args = self._megatron.checkpointing, self._megatron.arguments
        as_torch = {"ckpt_format": "torch", "use_dist_ckpt": False, "async_save": False}
        with self._megatron.with_arguments(**as_torch):
            state = checkpointing.generate_state_dict(
                args,
                _unwrapped(checkpointing, self._model),
                self._optimizer,
                self._scheduler,
                [kept.streams],
                iteration=kept.iteration,
            )
            state["num_floating_point_operations_so_far"] = kept.flops
            for key, value in state.items():
                if key.startswith("model") and isinstance(value, Mapping):
                    refuse_not_finite(_tensors(value), key)
            name = self._megatron.file_of_rank(request.step)
            records = [
                iteration_folder.write_file(
                    request.folder, name, lambda out: torch.save(state, out)
                )
            ]
        if sharded is not None:
            name = f"{name.rpartition('/')[0]}/distrib_optim.pt"
            records.append(
                iteration_folder.write_file(
                    request.folder, name, lambda out: torch.save(sharded, out)
                )
            )
        return records

    def facts(self, kept: committed.Committed) -> Mapping[str, Any]:
        """For the manifest."""
        args = self._megatron.arguments
        facts = {name: getattr(args, name, None) for name in _FACTS}
        return {**facts, "consumed_train_samples": kept.samples}


def _tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _unwrapped(checkpointing: ModuleType, model: Any) -> Any:  # noqa: ANN401
    unwrap = getattr(checkpointing, "unwrap_model", None)
    return model if unwrap is None else unwrap(model)
