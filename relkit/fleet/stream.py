"""One child process as a two-way stream of lines that never blocks its reader or writer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from relkit.errors import ToolMissing
from relkit.fleet.wire import MAX_LINE_BYTES, BadLine

_READ_BYTES = 1 << 16
_STDERR_TAIL_BYTES = 4096
_REAP_S = 1.0
MAX_UNSENT_BYTES = 8 << 20


class Stream:
    """A child in a session of its own, its three pipes non-blocking.

    Args:
        key: what the owner calls it.
        argv: the command, run without a shell.

    Raises:
        ToolMissing: the program is not there, or cannot be run.
    """

    def __init__(self, key: str, argv: Sequence[str]) -> None:
        self.key = key
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolMissing(f"cannot run {argv[0]}: {error.strerror}") from error
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self.stdin, self.stdout = self._process.stdin, self._process.stdout
        self.stderr = self._process.stderr
        for pipe in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(pipe.fileno(), False)
        self._line = bytearray()
        self._error_line = bytearray()
        self._tail = bytearray()
        self.unsent = bytearray()
        self.out_open = True

    @property
    def pid(self) -> int:
        """Of the child; also the id of its session and process group."""
        return self._process.pid

    @property
    def complaint(self) -> str:
        """The last few kilobytes of its stderr."""
        return self._tail.decode("utf-8", "replace")

    def write(self) -> bool:
        """Send what the pipe accepts now; False when the child no longer reads."""
        try:
            sent = os.write(self.stdin.fileno(), self.unsent[: 1 << 16])
        except BlockingIOError:
            return True
        except OSError:
            self.unsent.clear()
            return False
        del self.unsent[:sent]
        return True

    def read_lines(self) -> list[bytes]:
        """Whole lines that have come; `out_open` turns False at end of file.

        Raises:
            BadLine: a line is longer than any message may be.
        """
        data = _read(self.stdout.fileno())
        if data is None:
            return []
        if not data:
            self.out_open = False
            return []
        self._line += data
        *lines, rest = self._line.split(b"\n")
        self._line = bytearray(rest)
        if len(self._line) > MAX_LINE_BYTES or any(len(line) > MAX_LINE_BYTES for line in lines):
            raise BadLine(f"a line of more than {MAX_LINE_BYTES} bytes")
        return [bytes(line) for line in lines]

    def read_errors(self) -> tuple[list[str], bool]:
        """Whole lines of stderr that have come, and whether more can follow."""
        data = _read(self.stderr.fileno())
        if data is None:
            return [], True
        self._tail = (self._tail + data)[-_STDERR_TAIL_BYTES:]
        self._error_line += data
        *lines, rest = self._error_line.split(b"\n")
        self._error_line = bytearray(rest[-_STDERR_TAIL_BYTES:])
        return [line.decode("utf-8", "replace") for line in lines], bool(data)

    def forget_complaint(self) -> None:
        """Drop what its stderr has had so far: it is not the reason of a later end."""
        self.read_errors()
        self._tail.clear()

    def has_ended(self) -> bool:
        """Whether the child has ended; it stays unreaped, so that its group's id stays taken."""
        if self._process.returncode is not None:
            return True
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return ended is not None

    def hang_up(self) -> None:
        """End of file for the child."""
        with contextlib.suppress(OSError):
            self.stdin.close()

    def signal(self, number: int) -> None:
        """A signal to the child and all that it started, while the child is not reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> int:
        """End what is left of the child's group, and return the exit code (-n by signal n)."""
        self.signal(signal.SIGKILL)
        try:
            code = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            # Uninterruptible sleep: it dies once the kernel call returns; there is no need to wait.
            code = -signal.SIGKILL
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        return code


def _read(descriptor: int) -> bytes | None:
    """What can be read now: None for nothing yet, b"" for the end."""
    try:
        return os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
