"""DCP's reader of a state in memory: this rank's part, and what it says about all ranks' parts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from relkit.errors import BadInputFile
from relkit.flash_checkpoint.sharded.metadata import merged
from relkit.flash_checkpoint.sharded.part import DATA, shards
from relkit.flash_checkpoint.sharded.reading import hand_tensor, hand_value


class MemoryReader(StorageReader):
    """Reads one step out of memory, for `torch.distributed.checkpoint.load`.

    Args:
        part: of this rank, verified; contents: of all ranks' parts.
    """

    def __init__(self, part: Mapping[str, Any], contents: Sequence[Mapping[str, Any]]) -> None:
        self._values, self._shards = part[DATA], shards(part)
        self._metadata = merged(contents)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """As DCP's: a read begins; there is one state to read only."""

    def read_metadata(self, *_args: Any, **_options: Any) -> Metadata:  # noqa: ANN401
        """As DCP's."""
        return self._metadata

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
        *_args: Any,  # noqa: ANN401
        **_options: Any,  # noqa: ANN401
    ) -> None:
        """As DCP's."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As DCP's."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As DCP's."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """As DCP's.

        Raises:
            BadInputFile: a shard is asked for that another rank has.
        """
        for item in plan.items:
            index = item.storage_index
            if item.type is LoadItemType.BYTE_IO:
                if index.fqn not in self._values:
                    raise _elsewhere(index.fqn)
                hand_value(planner, item, self._values[index.fqn])
                continue
            shard = self._shards.get((index.fqn, tuple(index.offset or ())))
            if shard is None:
                raise _elsewhere(index.fqn)
            hand_tensor(planner, item, shard)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """As DCP's: memory has no paths."""
        return False


def _elsewhere(name: str) -> BadInputFile:
    return BadInputFile(
        f"{name} is asked for, and this rank has it not in memory, or another part of it: the model"
        " is divided in another way than it was saved",
        next_step="Load a folder on disk: get_storage_reader(path).",
    )
