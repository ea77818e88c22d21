"""How many files this process may have open: raised where many connections are expected."""

from __future__ import annotations

import contextlib
import resource

_FILES = resource.RLIMIT_NOFILE


class FileLimit:
    """Raises this process's soft limit, and keeps that from the programs that it starts.

    A high limit breaks programs that use select(2), and slows down those that close every possible
    descriptor: a job's workers keep the limit that the user gave.
    """

    def __init__(self) -> None:
        self._before = resource.getrlimit(_FILES)

    def require(self, files: int) -> str:
        """Raise the soft limit as far as needed, and as far as the hard limit allows.

        Args:
            files: that have to be open at a time.

        Returns:
            what is wrong, and what to do, where the hard limit is too low; "" where all is well.
        """
        soft, hard = resource.getrlimit(_FILES)
        if _covers(soft, files):
            return ""
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(_FILES, (files if _covers(hard, files) else hard, hard))
        soft, _ = resource.getrlimit(_FILES)
        if _covers(soft, files):
            return ""
        return (
            f"this launcher may have {soft} files open, and needs {files}: ranks may wait in"
            f" vain; raise the hard limit before the start: `ulimit -n {files}` as root,"
            f" LimitNOFILE={files} in a unit, --ulimit nofile={files} for a container"
        )

    def give_back_to(self, pid: int) -> None:
        """Have a process that was started since use the limit that this one began with."""
        with contextlib.suppress(OSError, ValueError):
            if resource.getrlimit(_FILES)[0] != self._before[0]:
                resource.prlimit(pid, _FILES, self._before)


def _covers(limit: int, files: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= files
