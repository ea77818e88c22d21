"""Runs Python scripts in forks of a process that has torch: `python SCRIPT` without its start."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, NoReturn

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LOOK_S = 0.01
_NOT_RUN = 70


def _nothing() -> None:
    """No preparation."""


class Forked:
    """A child that runs a script; what torchelastic asks of `subprocess.Popen`.

    Args:
        argv: the script and its arguments; env: its whole environment.
        stdout, stderr: files for its output; None for this process's own.
        before: called in the child before the script; after: behind it, before the child ends.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        stdout: IO[str] | int | None = None,
        stderr: IO[str] | int | None = None,
        *,
        before: Callable[[], None] = _nothing,
        after: Callable[[], None] = _nothing,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, env, (stdout, stderr), before, after)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code.

        Args:
            timeout: s, None for none.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        end_s = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_LOOK_S)
        return code

    def kill(self) -> None:
        """End it, and wait for that."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    outputs: Sequence[IO[str] | int | None],
    before: Callable[[], None],
    after: Callable[[], None],
) -> NoReturn:
    """Be the script, and end."""
    code = _NOT_RUN
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for target, output in enumerate(outputs, start=1):
            if output is not None:
                os.dup2(output if isinstance(output, int) else output.fileno(), target)
        os.environ.clear()
        os.environ.update(env)
        before()
        code = run_script(argv)
        after()
    finally:
        os._exit(code)


def run_script(argv: Sequence[str]) -> int:
    """Run a script in this process as the interpreter does.

    Args:
        argv: its path and its arguments.

    Returns:
        The exit code that the interpreter would have.
    """
    sys.argv = list(argv)
    path = Path(argv[0])
    module = ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    code = 0
    try:
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)  # noqa: S102
        threading._shutdown()  # type: ignore[attr-defined]
    except SystemExit as end:
        code = exit_code_of(end)
    except BaseException:  # noqa: BLE001 (all that the interpreter would show)
        code = 1
        show()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


def show() -> None:
    """Show the exception that is being handled, without the frame of whoever ran the code."""
    kind, error, at = sys.exc_info()
    assert kind is not None
    assert error is not None
    below = at.tb_next if at is not None else None
    sys.excepthook(kind, error.with_traceback(below), below)


def exit_code_of(end: SystemExit) -> int:
    """What the interpreter exits with."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
