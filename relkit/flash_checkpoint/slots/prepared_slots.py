"""Makes the memory of a rank's slots before its first save, which would else take several times as
long as those after it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.errors import NoRoom
from relkit.flash_checkpoint.slots.slot_file import SlotFile, require_room
from relkit.flash_checkpoint.slots.slot_format import Owner
from relkit.process.interruptible_wait import wait_for_end

# For the layout, and for what the optimizer does not know, such as buffers.
_MORE_BYTES = 4 << 20
_MORE_SHARE = 32
# Slots that turn out to be larger than this share of what a save needs are given back.
_MAX_SHARE = 1.25


class PreparedSlots:
    """A file of slots without a name, of which a thread makes the pages; freed with the process.

    Args:
        folder: of the slots; owner: rank and job that they will belong to.
        state_bytes: expected size of a state; savers: how many ranks of this node prepare as much.
    """

    def __init__(self, folder: Path, owner: Owner, state_bytes: int, savers: int) -> None:
        self._folder, self._owner, self._savers = folder, owner, savers
        self._state_bytes = state_bytes
        self._end_bytes = form.in_pages(state_bytes + state_bytes // _MORE_SHARE + _MORE_BYTES)
        self._pid = os.getpid()
        self._file: SlotFile | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relkit-flash-room", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        # What cannot be prepared is done by the first save, which also says what is wrong.
        with suppress(NoRoom, OSError):
            require_room(self._folder, 2 * self._end_bytes * self._savers)
            file = SlotFile.create_unnamed(self._folder, self._owner, self._end_bytes)
            self._file = file
            for index in range(2):
                file.populate(index, self._state_bytes, self._stop.is_set)

    def take(self, path: Path, end_bytes: int) -> SlotFile | None:
        """End the preparation, and get the file under a name, for the first save.

        Args:
            end_bytes: what a slot must hold (Places.end).

        Returns:
            None where there is no file that fits; its memory is freed.
        """
        file = self._ended()
        if file is None:
            return None
        if end_bytes <= file.slot_bytes <= max(end_bytes * _MAX_SHARE, end_bytes + 2 * _MORE_BYTES):
            with suppress(OSError):
                file.name(path)
                return file
        file.close()
        return None

    def discard(self) -> None:
        """End the preparation, and free the memory."""
        file = self._ended()
        if file is not None:
            file.close()

    def wait(self) -> None:
        """Wait until everything is prepared that can be."""
        wait_for_end(self._thread)

    def _ended(self) -> SlotFile | None:
        """The file, once the thread has ended; None in a forked child, where it never would."""
        if os.getpid() != self._pid:
            return None
        self._stop.set()
        self.wait()
        file, self._file = self._file, None
        return file
