"""Looks at the recorders of this node's ranks: what they do now, and what they have finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from relkit.errors import BadDump
from relkit.hook import layout
from relkit.hook.events import EventReader
from relkit.hook.model import HookState
from relkit.hook.reader import read_state
from relkit.launch.job.settings import LocalRank
from relkit.metrics.rank_samples import RankLook
from relkit.process import procfs

# What the contents of a damaged recorder may cause beside the errors that its reader declares.
_DAMAGED = (BadDump, OSError, ValueError, ArithmeticError, LookupError, TypeError)


class Recorders:
    """Of one attempt; the processes notice nothing of it.

    Args:
        ranks: of this node.
        file_of: the recorder file of a rank; None where it has none.
    """

    def __init__(self, ranks: Sequence[LocalRank], file_of: Callable[[int], Path | None]) -> None:
        self._ranks, self._file_of = tuple(ranks), file_of
        self._readers: dict[int, tuple[Path, EventReader]] = {}

    def looks(self) -> tuple[list[RankLook], Mapping[str, int]]:
        """Those of the ranks that run, and how many there are in each state."""
        looks, counts = [], {"running": 0, "ended": 0, "not seen": 0}
        for rank in self._ranks:
            path = self._file_of(rank.rank)
            state = None if path is None else _state_of(path)
            if path is None or state is None:
                counts["not seen"] += 1
            elif not procfs.is_same_process(state.pid, state.start_ticks):
                counts["ended"] += 1
                self._forget(rank.rank)
            else:
                counts["running"] += 1
                looks.append(self._look(rank.rank, path, state))
        return looks, counts

    def close(self) -> None:
        """Let go of all files."""
        for rank in tuple(self._readers):
            self._forget(rank)

    def _look(self, rank: int, path: Path, state: HookState) -> RankLook:
        reader = self._reader(rank, path)
        if reader is not None:
            try:
                events, groups = reader.drain().rows, reader.communicators()
                return RankLook(rank, state, events, reader.names, reader.kinds, groups)
            except _DAMAGED:
                self._forget(rank)
        return RankLook(rank, state, np.empty(0, layout.EVENT), (), (), ())

    def _reader(self, rank: int, path: Path) -> EventReader | None:
        known = self._readers.get(rank)
        if known is not None and known[0] == path:
            return known[1]
        self._forget(rank)
        try:
            reader = EventReader(path)
        except _DAMAGED:
            return None
        self._readers[rank] = path, reader
        return reader

    def _forget(self, rank: int) -> None:
        known = self._readers.pop(rank, None)
        if known is not None:
            known[1].close()


def _state_of(path: Path) -> HookState | None:
    try:
        return read_state(path, history=False)
    except _DAMAGED:
        return None
