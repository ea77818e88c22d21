"""Recorder files kept open: a rank can be read on after somebody has removed its file.

logind's RemoveIPC, the epilogs of schedulers and other cleaners empty /dev/shm under jobs that
run. The ranks write on into their mappings, and an open descriptor reads what they write.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from relkit.files.private_file import open_private
from relkit.hook.model import HookState
from relkit.process import procfs


class HeldFiles:
    """One descriptor for each process that is held; all are closed with this object."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, int, str]] = {}
        # What removed() has found last.
        self.lost: dict[int, Path] = {}

    def __del__(self) -> None:
        self.keep_only(())

    def hold(self, state: HookState, path: Path) -> None:
        """Open the file of a process, if that is not done; without room for it, leave it.

        Args:
            state: that was just read from the file.
            path: in the job's folder.
        """
        held = self._held.get(state.pid)
        if held is not None and held[1] == state.start_ticks:
            return
        with suppress(OSError):
            descriptor = open_private(path)
            if held is not None:
                os.close(held[0])
            self._held[state.pid] = descriptor, state.start_ticks, path.name

    def keep_only(self, pids: Collection[int]) -> None:
        """Close the files of all other processes."""
        for pid in [pid for pid in self._held if pid not in pids]:
            os.close(self._held.pop(pid)[0])

    def removed(self, present: Collection[str]) -> dict[int, Path]:
        """Process id -> a path that opens its file, of those that live and whose file has gone.

        Args:
            present: names of the files that are in the folder.
        """
        self.lost = {
            pid: Path(f"/proc/{os.getpid()}/fd/{descriptor}")
            for pid, (descriptor, start_ticks, name) in self._held.items()
            if name not in present and procfs.is_same_process(pid, start_ticks)
        }
        return self.lost
