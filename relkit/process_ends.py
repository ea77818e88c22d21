"""Processes whose end the kernel tells: the end of a link is not enough.

A process that a rank has forked may hold the rank's link open.
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
        """Be told of the end of these: rank -> process."""
        for rank, pid in pids.items():
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                self._ranks[handle] = rank
                self._selector.register(handle, selectors.EVENT_READ)

    def owns(self, descriptor: int) -> bool:
        """Whether it is one of these."""
        return descriptor in self._ranks

    def take(self, descriptor: int) -> int:
        """The rank whose process has ended; it is not watched any more."""
        rank = self._ranks.pop(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        return rank

    def close(self) -> None:
        """Watch none."""
        for handle in self._ranks:
            with contextlib.suppress(OSError):
                os.close(handle)
        self._ranks.clear()
