"""The emergency save: what a rank does when it is asked to save, to rename and to clean up."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import MANIFEST, FileRecord, read_manifest
from relkit.errors import RelkitError
from relkit.output import write_atomic
from relkit.ttp.handlers import Handlers, NotFinite, SaveRequest
from relkit.ttp.messages import Commit, Committed, Note, Save, Saved, SaveFailed
from relkit.ttp.rank_state import RankState
from relkit.ttp.relay import Notes, RelayStore

_GROUP_S = 30.0
_DISCARD_S = 2.0


class Saver:
    """Carries out the commands of a controller for one rank.

    Args:
        state: of this rank.
        handlers: of the training loop.
        notes: where the processor puts what other members of the save leave.
        tell: sends a message to the controller.
    """

    def __init__(
        self, state: RankState, handlers: Handlers, notes: Notes, tell: Callable[[Note], None]
    ) -> None:
        self._state, self._handlers = state, handlers
        self._notes, self._tell = notes, tell

    def save(self, command: Save) -> Saved | SaveFailed:
        """Catch up if need be, meet the other holders, save."""
        rank, plan = self._state.rank, command.plan
        failed = self._catch_up(command)
        if failed is not None:
            return failed
        alone = len(plan.ranks) == 1
        try:
            group = self._meet(plan.ranks, command.epoch)
            if rank == plan.ranks[0]:
                iteration_folder.begin(self._handlers.root, plan.step)
            _barrier(group, len(plan.ranks))
            folder = self._folder(plan.step)
            what = SaveRequest(plan.step, folder, plan, rank, group, plan.ranks)
            records = self._handlers.save(what)
        except NotFinite as error:
            return SaveFailed(rank, command.epoch, str(error), refused=True)
        except RuntimeError as error:
            # A peer of the save's own group has gone: those that are left are planned with again.
            return SaveFailed(rank, command.epoch, _brief(error), peer=not alone)
        except Exception as error:  # noqa: BLE001 (a user's own handler may raise anything)
            own = isinstance(error, RelkitError | OSError)
            return SaveFailed(rank, command.epoch, str(error) if own else _brief(error))
        files = {record.name: (record.sha256, record.size_bytes) for record in records}
        return Saved(rank, command.epoch, files)

    def _catch_up(self, command: Save) -> SaveFailed | None:
        """Make the step that this rank is behind, or go back by one."""
        rank, plan, handlers = self._state.rank, command.plan, self._handlers
        if rank in plan.roll_forward:
            catch_up = handlers.roll_forward
        elif rank in plan.rollback and handlers.rollback is not None:
            catch_up = handlers.rollback
        else:
            return None
        self._state.catching_up()
        try:
            catch_up(plan.step)
        except Exception as error:  # noqa: BLE001 (a user's own handler may raise anything)
            # Half of a step is no step: others that hold the same shards are to save them.
            self._state.broken(f"{_brief(error)} while it caught up")
            return SaveFailed(rank, command.epoch, _brief(error), peer=True)
        self._state.caught_up(plan.step)
        return None

    def commit(self, command: Commit) -> Committed | SaveFailed:
        """Give the iteration its final name, and point the tracker to it."""
        records = [FileRecord(name, size, sha) for name, (sha, size) in command.files.items()]
        try:
            if self._handlers.rename is not None:
                final = self._handlers.rename(command.step, self._folder(command.step), records)
            else:
                final = self._rename(command.step, records)
        except Exception as error:  # noqa: BLE001 (a user's own handler may raise anything)
            own = isinstance(error, RelkitError | OSError)
            sentence = str(error) if own else _brief(error)
            return SaveFailed(self._state.rank, command.epoch, sentence)
        return Committed(self._state.rank, command.epoch, str(final))

    def _rename(self, step: int, records: list[FileRecord]) -> Path:
        root, folder = self._handlers.root, self._folder(step)
        final = root / iteration_folder.iteration_name(step)
        if _is_whole(final, records):
            # Whoever was told before died after the renaming.
            write_atomic(root / iteration_folder.TRACKER, str(step))
            iteration_folder.sync_folder(root)
            iteration_folder.abandon(folder)
            return final
        # ... or before it.
        (folder / MANIFEST).unlink(missing_ok=True)
        facts = {**self._handlers.facts(), "saved_by": "try-to-persist"}
        return iteration_folder.commit(folder, step, records, facts)

    def discard(self) -> None:
        """Remove what saves that will not be have written: an emergency save, or a periodic one."""
        until_s = time.monotonic() + _DISCARD_S
        while True:
            try:
                for unfinished in iteration_folder.half_written(self._handlers.root):
                    iteration_folder.abandon(unfinished)
                return
            except OSError:
                # A folder that cannot be removed is never resumed from; it must not keep us here.
                if time.monotonic() > until_s:
                    return
                time.sleep(0.05)

    def _folder(self, step: int) -> Path:
        name = iteration_folder.iteration_name(step) + iteration_folder.TEMPORARY
        return self._handlers.root / name

    def _meet(self, ranks: tuple[int, ...], epoch: int) -> Any:  # noqa: ANN401 (torch's own type is private)
        """A gloo group of the holders alone: it never sees the dead."""
        if len(ranks) == 1:
            return None

        def tell(key: str, data: bytes) -> None:
            self._tell(Note(self._state.rank, epoch, key, data.hex()))

        store = RelayStore(self._notes, epoch, tell, _GROUP_S)
        place = ranks.index(self._state.rank)
        return dist.ProcessGroupGloo(store, place, len(ranks), timedelta(seconds=_GROUP_S))


def _barrier(group: Any, size: int) -> None:  # noqa: ANN401
    if size > 1:
        group.allreduce([torch.zeros(1)]).wait()


def _is_whole(final: Path, records: list[FileRecord]) -> bool:
    try:
        written = read_manifest(final).files
    except (RelkitError, OSError):
        return False
    return sorted(written, key=_name) == sorted(records, key=_name)


def _name(record: FileRecord) -> str:
    return record.name


def _brief(error: BaseException) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:300]
