"""By which degrees Megatron divides a model between ranks: kept with a state in memory.

The same names of files, or of shards, may stand for other parts under other degrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relkit.flash_checkpoint.choice import other_division
from relkit.flash_checkpoint.megatron import sharded_state
from relkit.flash_checkpoint.on_disk import iteration_files

_KEY = "degrees"
_DEGREES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "use_distributed_optimizer",
    "use_tp_pp_dp_mapping",
)


def of_arguments(arguments: Any) -> dict[str, Any]:  # noqa: ANN401
    """The degrees in Megatron's arguments; those that this version does not have are None."""
    return {name: getattr(arguments, name, None) for name in _DEGREES}


def with_degrees(state: Mapping[str, Any], degrees: Mapping[str, Any]) -> dict[str, Any]:
    """A state as it is kept, with the degrees in it."""
    if iteration_files.is_files(state):
        return {**state, iteration_files.MEMORY_ONLY: {_KEY: dict(degrees)}}
    mark = sharded_state.MARK
    return {**state, mark: {**state[mark], _KEY: dict(degrees)}}


def why_not(state: Any, degrees: Mapping[str, Any]) -> str:  # noqa: ANN401
    """Why a state cannot be loaded with these degrees; "" if it can, or has none in it."""
    kept = state if isinstance(state, dict) else {}
    inner = kept.get(iteration_files.MEMORY_ONLY) or kept.get(sharded_state.MARK)
    saved = inner.get(_KEY) if isinstance(inner, dict) else None
    return other_division(saved, degrees) if isinstance(saved, dict) else ""
