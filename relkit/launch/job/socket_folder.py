"""The folder where workers answer their launcher by sockets, and leave it notes of their ends.

Only this user gets in.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from relkit.files.private_file import is_private_folder, open_private
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.post_mortem.raised_note import SUFFIX

SOCKET_DIR = "RELKIT_SOCKET_DIR"
# The user's own word: 0 for never, 1 for always.
WANTED = "RELKIT_WORKER_SERVER"
_PREFIX = "relkit-ws-"
_LOCK = "launcher.lock"
# A socket's name has 107 bytes, and needs 24 of them for the process and its PID namespace.
_MAX_PATH_BYTES = 82


def may_serve() -> bool:
    """Servers may run in workers, as far as the user is asked."""
    return os.environ.get(WANTED) != "0"


class SocketFolder:
    """One launcher's folder, made on demand and removed at its end.

    Each launcher holds a lock in its folder, so that one without is known to be left over.

    Args:
        log: writes one line to the terminal.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._folder: Path | None = None
        self._lock: int | None = None

    @property
    def path(self) -> Path | None:
        """None where there is none."""
        return self._folder

    @property
    def without_hook(self) -> str:
        """What becomes of hangs where the hook is off, in words."""
        if not may_serve():
            return "hangs are not detected"
        return "hangs are looked for in PyTorch's flight recorder"

    def begin(self) -> dict[str, str]:
        """Make room for the sockets of workers that are to be started; none runs any more.

        Returns:
            the variables for them; none where no server is to run in them.
        """
        if not may_serve():
            return {}
        if self._folder is not None:
            # Workers that were killed have left theirs, and a process of the same number could not
            # listen there, nor leave a note of its own.
            for left in (*self._folder.glob("*.sock"), *self._folder.glob(f"*{SUFFIX}")):
                with suppress(OSError):
                    left.unlink()
        else:
            try:
                self._make()
            except OSError as error:
                self._log(warning(f"no folder for workers' sockets: {error.strerror or error}"))
                return {}
        return {} if self._folder is None else {SOCKET_DIR: str(self._folder)}

    def _make(self) -> None:
        root = Path(tempfile.gettempdir())
        root = root if len(os.fsencode(root)) <= _MAX_PATH_BYTES - 30 else Path("/tmp")
        for left in root.glob(f"{_PREFIX}*"):
            _remove_if_left(left)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        unlocked = folder / f"{_LOCK}.new"
        self._lock = open_private(unlocked, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # Only now has it the name by which another launcher knows what is left over.
        unlocked.rename(folder / _LOCK)
        self._folder = folder

    def remove(self) -> None:
        """The job is over."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_if_left(folder: Path) -> None:
    """Remove a folder of this user's whose launcher was killed."""
    if not is_private_folder(folder) or not (folder / _LOCK).is_file():
        return
    with suppress(OSError):
        handle = open_private(folder / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
