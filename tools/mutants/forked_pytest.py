"""Runs in a copy's interpreter: imports what most tests need, then forks a pytest for each request.

A request is a line of JSON on stdin: {"argv": [...], "output": file}. The answer is the process's
number, and, when it has ended, its exit code: a line each on stdout.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys

# Nothing of relkit, which is about to change.
_EARLY = ("pytest", "numpy", "psutil", "click", "rich.console", "hypothesis", "torch")
# They were imported before pytest could rewrite them.
_QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def main() -> None:
    """Serve requests until stdin ends."""
    # In the background of a script it is ignored, and tests that send it would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in _EARLY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(request["argv"], request["output"])
        print(pid, flush=True)
        # Left as it is until its group has been ended, so that no other process gets its number.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, 9)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _run(argv: list[str], output: str) -> None:
    os.setsid()
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((nothing, 0), (stream, 1), (stream, 2)):
        os.dup2(number, target)
    os.closerange(3, max(stream, nothing) + 1)
    # Python keeps what stdin had read ahead.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    code = 3
    try:
        code = int(importlib.import_module("pytest").main([*_QUIET, *argv]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads that a broken relkit has left do not keep it.
        os._exit(code)


if __name__ == "__main__":
    main()
