"""The dying-gasp checkpoint: what a rank does when it is told to save, to rename, to clean up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from relkit.errors import RelkitError
from relkit.trainer import checkpoint_files
from relkit.trainer.manifest import FileRecord
from relkit.ttp.handlers import Handlers, NotFinite, SaveOrder
from relkit.ttp.link import Endpoint
from relkit.ttp.messages import Commit, Committed, Discard, Dump, Saved, SaveFailed
from relkit.ttp.seat import Seat

_GROUP_S = 30.0


class Dumper:
    """Carries out the orders of a controller for one rank.

    Args:
        seat: of this rank.
        handlers: of the training loop.
        store: the launcher's rendezvous store, which outlives any rank.
        incarnation: of the job.
    """

    def __init__(self, seat: Seat, handlers: Handlers, store: Endpoint, incarnation: int) -> None:
        self._seat, self._handlers = seat, handlers
        self._store, self._incarnation = store, incarnation

    def dump(self, order: Dump) -> Saved | SaveFailed:
        """Catch up if need be, meet the other holders, save."""
        rank, plan = self._seat.rank, order.plan
        try:
            if rank in plan.roll_forward:
                self._handlers.roll_forward(plan.step)
                self._seat.rolled_forward(plan.step)
            elif rank in plan.go_back and self._handlers.go_back is not None:
                self._handlers.go_back(plan.step)
                self._seat.rolled_forward(plan.step)
            group = self._meet(plan.ranks, order.epoch)
            if rank == plan.ranks[0]:
                checkpoint_files.begin(self._handlers.root, plan.step)
            _barrier(group, len(plan.ranks))
            folder = self._folder(plan.step)
            what = SaveOrder(plan.step, folder, plan, rank, group, plan.ranks)
            records = self._handlers.save(what)
        except NotFinite as error:
            return SaveFailed(rank, order.epoch, str(error), refused=True)
        except (RelkitError, OSError) as error:
            return SaveFailed(rank, order.epoch, str(error))
        except RuntimeError as error:
            # A peer of the dump's own group has gone: those that are left are planned with again.
            first = (str(error).splitlines() or [type(error).__name__])[0]
            return SaveFailed(rank, order.epoch, first[:300], peer=True)
        files = {record.name: (record.sha256, record.size_bytes) for record in records}
        return Saved(rank, order.epoch, files)

    def commit(self, order: Commit) -> Committed | SaveFailed:
        """Give the iteration its final name, and point the tracker to it."""
        records = [FileRecord(name, size, sha) for name, (sha, size) in order.files.items()]
        folder = self._folder(order.step)
        try:
            if self._handlers.rename is not None:
                final = self._handlers.rename(order.step, folder, records)
            else:
                facts = {**self._handlers.facts(), "saved_by": "try-to-persist"}
                final = checkpoint_files.commit(folder, order.step, records, facts)
        except (RelkitError, OSError) as error:
            return SaveFailed(self._seat.rank, order.epoch, str(error))
        return Committed(self._seat.rank, order.epoch, str(final))

    def discard(self, order: Discard) -> None:
        """Remove what a dump that will not be has written."""
        checkpoint_files.abandon(self._folder(order.step))

    def _folder(self, step: int) -> Path:
        name = checkpoint_files.iteration_name(step) + checkpoint_files.TEMPORARY
        return self._handlers.root / name

    def _meet(self, ranks: tuple[int, ...], epoch: int) -> Any:  # noqa: ANN401 (torch's own type is private)
        """A gloo group of the holders alone: it never sees the dead."""
        if len(ranks) == 1:
            return None
        timeout = timedelta(seconds=_GROUP_S)
        store = TCPStore(self._store.host, self._store.port, is_master=False, timeout=timeout)
        prefix = PrefixStore(f"relkit/ttp/{self._incarnation}/{epoch}", store)
        place = ranks.index(self._seat.rank)
        return dist.ProcessGroupGloo(prefix, place, len(ranks), timeout)


def _barrier(group: Any, size: int) -> None:  # noqa: ANN401
    if size > 1:
        group.allreduce([torch.zeros(1)]).wait()
