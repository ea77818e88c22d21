"""A standby that is not what a new process would be becomes one: the same process, begun again.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class FreshStart:
    """Make it before anything is imported: what imports do to the environment is not kept."""

    def __init__(self) -> None:
        with open("/proc/self/environ", "rb") as stream:  # noqa: PTH123
            entries = [os.fsdecode(entry).partition("=") for entry in stream.read().split(b"\0")]
        self._environment = {name: value for name, equals, value in entries if equals}

    def prepare(self, given: dict[str, Any]) -> None:
        """Take what the launcher has given for the worker's environment."""
        for name in given["unset"]:
            self._environment.pop(name, None)
        self._environment.update(given["set"])

    def begin(self) -> NoReturn:
        """Run the command of this process once more in its place.

        What imports have started is ended, and what they have opened is closed, but for 0, 1 and 2.
        Limits, ignored signals and the like stay, as over any exec.

        Raises:
            OSError: that is not possible.
        """
        _end_children()
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
            # One of them is that of this very list.
            with suppress(OSError):
                if int(name) > 2:
                    os.set_inheritable(int(name), False)
        os.execvpe(sys.orig_argv[0], sys.orig_argv, self._environment)  # noqa: S606  as it began


def _end_children() -> None:
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        with suppress(OSError), open(f"/proc/self/task/{task}/children") as stream:  # noqa: PTH123
            for pid in map(int, stream.read().split()):
                with suppress(OSError):
                    # Refused for one that is no child: /proc may be of another PID namespace.
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
