"""Pytest runs, each forked from one process that has imported pytest and torch already."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_START_S = 120.0
# That pytest gets to end what its tests have started.
_TEARDOWN_S = 20.0
_POLL_S = 0.2
# A loop that has no end any more may fill the memory.
_MEMORY_BYTES = 8 << 30


class NoEnd(Exception):
    """Tests, or the compiler, that have not ended in time."""


class PytestServer:
    """Runs pytest in one folder, one run at a time.

    Args:
        python: interpreter that finds the folder's packages; folder: the working directory.
        stopped: set from another thread, it ends the run.
    """

    def __init__(self, python: Path, folder: Path, stopped: threading.Event) -> None:
        self._argv = [str(python), "-m", "tools.mutants.forked_pytest"]
        self._folder, self._stopped = folder, stopped
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = b""

    def run(self, argv: Sequence[str], output: Path, limit_s: float) -> int:
        """Run pytest, and end whatever it has left.

        Returns:
            Its exit code.

        Raises:
            NoEnd: it takes longer than the limit.
            KeyboardInterrupt: it was stopped.
        """
        process = self._started()
        assert process.stdin is not None
        request = json.dumps({"argv": list(argv), "output": str(output)})
        process.stdin.write(f"{request}\n".encode())
        process.stdin.flush()
        pid = self._answer(_START_S, lambda: False)
        if pid is None:
            self.close()
            raise NoEnd("pytest does not start")
        resource.prlimit(pid, resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        code = self._answer(limit_s, self._stopped.is_set)
        if code is not None:
            return code
        os.kill(pid, signal.SIGINT)
        if self._answer(_TEARDOWN_S, lambda: False) is None:
            os.killpg(pid, signal.SIGKILL)
            self._answer(_TEARDOWN_S, lambda: False)
        if self._stopped.is_set():
            raise KeyboardInterrupt
        raise NoEnd(f"no end within {limit_s:.0f} s")

    def close(self) -> None:
        """End the process; the next run starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._answers = b""
            environ = {**os.environ, "COLUMNS": "200", "HYPOTHESIS_PROFILE": "few"}
            self._process = subprocess.Popen(
                self._argv, cwd=self._folder, env=environ, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return self._process

    def _answer(self, limit_s: float, is_given_up: Callable[[], bool]) -> int | None:
        """The next number, or None where none comes in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        end_s = time.monotonic() + limit_s
        while b"\n" not in self._answers:
            if time.monotonic() > end_s or is_given_up():
                return None
            if select.select([self._process.stdout], [], [], _POLL_S)[0]:
                piece = os.read(self._process.stdout.fileno(), 4096)
                if not piece:
                    return None
                self._answers += piece
        line, _, self._answers = self._answers.partition(b"\n")
        return int(line)
