"""Programs that run beside each other, and waiting for what they do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("KUBE_CACHE") or Path.home() / ".cache" / "relkit-kube")
WAIT_S = 300.0


def environment() -> dict[str, str]:
    """With what was built and unpacked before the machine's own programs."""
    root = CACHE / "apt" / "root" / "usr"
    path = f"{CACHE / 'bin'}:{root / 'bin'}:{root / 'sbin'}"
    path += f":{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


@contextmanager
def started(log: Path, argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is ended with the block; it writes beside its log.

    Args:
        log: a new file, whose folder is the program's.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(argv, cwd=log.parent, env=environment(), stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def wait(what: str, condition: Callable[[], bool], limit_s: float = WAIT_S) -> None:
    """Wait until it holds.

    Raises:
        AssertionError: it does not within the time.
    """
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f"{what}: not within {limit_s:g} s")
        time.sleep(0.5)


def say(line: str) -> None:
    """One line of the log."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
