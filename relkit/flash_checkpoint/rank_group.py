"""Lets the ranks of a job exchange values of JSON, through torch's store."""

from __future__ import annotations

import itertools
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from relkit.errors import DeadlineExceeded, RelkitError, UsageProblem
from relkit.text.foreign_json import parse_json

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

# How often a note is looked for, s: ever less often, as all ranks may ask one store.
_POLL_S, _POLL_GROWTH, _LONGEST_POLL_S = 0.01, 1.5, 0.25
_numbers = itertools.count()


@dataclass(slots=True)
class RankGroup:
    """All ranks of a job. Every rank must make its groups in the same order.

    Args:
        rank, world_size: of this process.
        store: of the job; None for a job of one rank.
    """

    rank: int
    world_size: int
    store: Store | None
    number: int = field(default_factory=lambda: next(_numbers))
    _round: int = 0
    _notes: dict[str, Any] = field(default_factory=dict)

    def all_gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """The values of all ranks, in the order of ranks. Every rank must call it.

        Args:
            value: of JSON's types.

        Raises:
            RelkitError: a rank has not called it within the store's timeout.
        """
        if self.store is None or self.world_size == 1:
            return [value]
        self._round += 1
        key = f"relkit-flash/{self.number}/{self._round}"
        try:
            self.store.set(f"{key}/{self.rank}", json.dumps(value))
            if self.rank == 0:
                # Rank 0 collects: the number of calls then grows with the ranks, not their square.
                values = [
                    parse_json(self.store.get(f"{key}/{rank}")) for rank in range(self.world_size)
                ]
                self.store.set(f"{key}/all", json.dumps(values))
            everything: list[Any] = parse_json(self.store.get(f"{key}/all"))
        except (RuntimeError, OSError, ValueError) as error:
            raise RelkitError(
                f"the ranks cannot agree on a checkpoint: {_first(error)}",
                next_step="All ranks must call their checkpointers alike, in the same order.",
            ) from error
        return everything

    def meet(self, value: Any, timeout_s: float) -> list[Any]:  # noqa: ANN401
        """As all_gather, for ranks that come at very different times. Every rank must call it.

        Other threads of this process may use the store meanwhile, as those do that save.

        Args:
            value: of JSON's types.
            timeout_s: the longest to wait for a rank, s.

        Raises:
            DeadlineExceeded: a rank has not called it in time.
            RelkitError: a rank has closed its checkpointer, or the store does not answer.
        """
        if self.store is None or self.world_size == 1:
            return [value]
        self._round += 1
        name = f"met/{self._round}"
        self.put(f"{name}/{self.rank}", value)
        if self.rank == 0:
            end_s = time.monotonic() + timeout_s
            values = [
                self.wait_for(f"{name}/{rank}", rank, max(0.0, end_s - time.monotonic()))
                for rank in range(self.world_size)
            ]
            self.put(f"{name}/all", values)
            return values
        # Rank 0 may have waited as long for another one, which says so then.
        everything: list[Any] = self.wait_for(f"{name}/all", 0, 2 * timeout_s)
        return everything

    def put(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Leave a value for the other ranks, from any thread.

        Args:
            name: of the note, once; value: of JSON's types.

        Raises:
            RelkitError: the store does not answer.
        """
        if self.store is None:
            self._notes[name] = value
            return
        try:
            self.store.set(self._note(name), json.dumps(value))
        except (RuntimeError, OSError) as error:
            raise RelkitError(f"the store of the job does not answer: {_first(error)}") from error

    def retire(self) -> None:
        """This rank leaves no more notes: nobody need wait for one. The store may be gone."""
        with suppress(RelkitError):
            self.put(_retired(self.rank), value=True)

    def wait_for(self, name: str, rank: int, timeout_s: float) -> Any:  # noqa: ANN401
        """The value that a rank has left, or leaves meanwhile. Other threads may use the store.

        Args:
            name: of the note; rank: whose note it is.
            timeout_s: the longest to wait, s.

        Raises:
            DeadlineExceeded: it has left none in time.
            RelkitError: it has retired without leaving one, or the store does not answer.
        """
        if self.store is None:
            return self._notes[name]
        end_s, poll_s = time.monotonic() + timeout_s, _POLL_S
        try:
            # A blocking get() would keep the training loop from the store.
            while True:
                # Asked first: a note that was left before the rank retired is then seen.
                has_retired = self.store.check([self._note(_retired(rank))])
                if self.store.check([self._note(name)]):
                    return parse_json(self.store.get(self._note(name)))
                if has_retired:
                    raise RelkitError(f"rank {rank} has closed its checkpointer, or has ended")
                if time.monotonic() >= end_s:
                    raise DeadlineExceeded(f"rank {rank} has not answered within {timeout_s:g} s")
                time.sleep(poll_s)
                poll_s = min(_POLL_GROWTH * poll_s, _LONGEST_POLL_S)
        except (RuntimeError, OSError, ValueError) as error:
            raise RelkitError(f"the store of the job does not answer: {_first(error)}") from error

    def _note(self, name: str) -> str:
        return f"relkit-flash/{self.number}/notes/{name}"


def _retired(rank: int) -> str:
    return f"retired/{rank}"


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def group_of_job() -> RankGroup:
    """The ranks of torch's default process group; this one alone where there is none.

    Raises:
        UsageProblem: a launcher has started several ranks, and there is no process group yet.
    """
    if dist.is_available() and dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
        return RankGroup(dist.get_rank(), dist.get_world_size(), store)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageProblem(
            "there is no process group yet",
            next_step="Call torch.distributed.init_process_group() first.",
        )
    return RankGroup(0, 1, None)
