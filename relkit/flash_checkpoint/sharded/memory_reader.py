"""DCP's reader of a state in memory: this rank's part, and what it says about all ranks' parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from relkit.errors import BadInputFile
from relkit.flash_checkpoint.sharded.metadata import merged
from relkit.flash_checkpoint.sharded.part import DATA, shards
from relkit.flash_checkpoint.sharded.reading import hand_tensor, hand_value


class MemoryReader(StorageReader):
    """Reads one step out of memory, for `torch.distributed.checkpoint.load`.

    If a rank asks for what it does not have, because the model is divided in another way than it
    was saved, all ranks read from disk instead, and DCP reshards.

    Args:
        part: of this rank, verified; contents: of all ranks' parts.
        from_disk: called on all ranks with the reason: the reader of what is on disk; None where
            there is nothing.
        begun: called on all ranks where memory is read after all, before that.
    """

    def __init__(
        self,
        part: Mapping[str, Any],
        contents: Sequence[Mapping[str, Any]],
        from_disk: Callable[[str], StorageReader | None] = lambda _why: None,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        self._values, self._shards = part[DATA], shards(part)
        self._metadata = merged(contents)
        self._from_disk, self._begun = from_disk, begun
        self._disk: StorageReader | None = None
        self._has_read = False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """As DCP's: a read begins; there is one state to read only."""

    def read_metadata(self, *_args: Any, **_options: Any) -> Metadata:  # noqa: ANN401
        """As DCP's."""
        return self._metadata if self._disk is None else self._disk.read_metadata()

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
        *args: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> None:
        """As DCP's."""
        if self._disk is not None:
            self._disk.set_up_storage_reader(metadata, is_coordinator, *args, **options)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As DCP's: says what is asked for and not in memory."""
        if self._disk is not None:
            return self._disk.prepare_local_plan(plan)
        missing = next((item for item in plan.items if not self._has(item)), None)
        return replace(plan, storage_data=None if missing is None else missing.storage_index.fqn)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As DCP's: what one rank misses, none reads from memory."""
        if self._disk is not None:
            return self._disk.prepare_global_plan(plans)
        missing = next((plan.storage_data for plan in plans if plan.storage_data), None)
        return [replace(plan, storage_data=missing) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """As DCP's.

        Raises:
            BadInputFile: a shard is asked for that another rank has, and there is nothing on disk,
                or a part of the state was already read from memory.
        """
        if self._disk is not None:
            return self._disk.read_data(plan, planner)
        if plan.storage_data:
            return self._read_from_disk(str(plan.storage_data), planner)
        if not self._has_read:
            self._has_read = True
            self._begun()
        for item in plan.items:
            index = item.storage_index
            if not self._has(item):
                raise _elsewhere(index.fqn)
            if item.type is LoadItemType.BYTE_IO:
                hand_value(planner, item, self._values[index.fqn])
            else:
                hand_tensor(planner, item, self._shards[index.fqn, tuple(index.offset or ())])
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _has(self, item: ReadItem) -> bool:
        index = item.storage_index
        if item.type is LoadItemType.BYTE_IO:
            return index.fqn in self._values
        return (index.fqn, tuple(index.offset or ())) in self._shards

    def _read_from_disk(self, missing: str, planner: LoadPlanner) -> Future[None]:
        """Load the same state from disk, by a plan of its own: it has other shards."""
        if (
            # Two steps in one state would be worse than none.
            self._has_read
            or not isinstance(planner, DefaultLoadPlanner)
            or isinstance(planner, _EmptyStateDictLoadPlanner)
        ):
            raise _elsewhere(missing)
        disk = self._from_disk(f"{missing} is divided in another way than it was saved")
        if disk is None:
            raise _elsewhere(missing)
        self._disk = disk
        metadata = disk.read_metadata()
        planner.set_up_planner(planner.original_state_dict, metadata, planner.is_coordinator)
        disk.set_up_storage_reader(metadata, planner.is_coordinator)
        (plan,) = disk.prepare_global_plan([disk.prepare_local_plan(planner.create_local_plan())])
        return disk.read_data(planner.finish_plan(plan), planner)

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
