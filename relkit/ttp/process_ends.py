"""Reports the end of a rank's process as the kernel sees it.

The end of its link is not enough: a process that the rank has forked may hold the link open.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Mapping


class ProcessEnds:
    """Descriptors of processes, in a selector.

    Args:
        selector: of the thread that serves them.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._ranks: dict[int, int] = {}

    def watch(self, pids: Mapping[int, int]) -> None:
        """Watch these as well: rank -> process; one that is gone already is left out."""
        for rank, pid in pids.items():
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                self._ranks[handle] = rank
                self._selector.register(handle, selectors.EVENT_READ)

    def owns(self, descriptor: int) -> bool:
        """Whether `take` is for an event of this descriptor."""
        return descriptor in self._ranks

    def take(self, descriptor: int) -> int:
        """The rank whose process has ended, which is no longer watched."""
        rank = self._ranks.pop(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        return rank

    def close(self) -> None:
        """Watch none any more."""
        for handle in self._ranks:
            with contextlib.suppress(OSError):
                os.close(handle)
        self._ranks.clear()
