"""megatron-core's sharded states: what this rank has of one as plain data, and back.

Each rank keeps all that it gives to `dist_checkpointing.save`, replicas included, so that it needs
no other rank to load it again.

Source: megatron-core's `dist_checkpointing.serialization` (`save` and `load`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relkit.errors import BadInputFile

MARK = "relkit.mcore/1"
_PARTS = "common", "tensors", "objects"


def is_sharded(state: object) -> bool:
    """Whether a state is one of `take`."""
    kept = state.get(MARK) if isinstance(state, dict) else None
    return isinstance(kept, dict) and all(isinstance(kept.get(part), dict) for part in _PARTS)


def take(state_dict: dict[str, Any], content_metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What this rank has of a state that Megatron saves; no other rank is asked.

    Args:
        content_metadata: what megatron-core keeps beside the state.
    """
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.dist_checkpointing.state_dict_utils import save_preprocess

    whole = dict(state_dict)
    if content_metadata is not None:
        whole["content_metadata"] = dict(content_metadata)
    sharded, common = save_preprocess(whole, False)
    tensors: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for shard in nested_values(sharded):
        kept = objects if isinstance(shard, ShardedObject) else tensors
        kept[_name(shard)] = shard.data
    return {MARK: {"common": common, "tensors": tensors, "objects": objects}}


def common_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """What every rank has alike, as megatron-core's `load_common_state_dict` gives it."""
    return dict(state[MARK]["common"])


def put_into(state: Mapping[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """As megatron-core's `load`: the content of a template's shards, and what is common.

    Args:
        state: from `take`; template: the sharded state of the model as it is now.

    Raises:
        BadInputFile: the template has other shards than were saved.
    """
    from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace, merge
    from megatron.core.dist_checkpointing.mapping import ShardedObject, apply_factory_merges
    from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess
    from megatron.core.dist_checkpointing.utils import extract_sharded_base

    def content(shard: Any) -> Any:  # noqa: ANN401
        kept = state[MARK]["objects" if isinstance(shard, ShardedObject) else "tensors"]
        name = _name(shard)
        if name not in kept:
            raise BadInputFile(
                f"{name} is asked for, and this rank does not have it in memory: the model is"
                " divided in another way than it was saved",
                next_step="Start the job again: it loads what is on disk.",
            )
        return kept[name]

    result = common_of(state)
    sharded, nonpersistent, factories = load_preprocess(template)
    merge(result, nonpersistent)
    sharded, _ = extract_sharded_base(sharded)
    dict_list_map_inplace(content, sharded)
    merge(result, sharded)
    loaded: dict[str, Any] = apply_factory_merges(result, factories)
    return loaded


def _name(shard: Any) -> str:  # noqa: ANN401
    """Names a shard: the same for what is the same part of the same tensor."""
    # Where it begins, how large it is (an object has no size), and what it is a part of.
    numbers = [shard.global_offset, getattr(shard, "local_shape", ()), shard.global_shape]
    flattened = getattr(shard, "flattened_range", None)
    if flattened is not None:
        numbers.append((flattened.start, flattened.stop))
    return "|".join([str(shard.key), *(",".join(map(str, part)) for part in numbers)])
