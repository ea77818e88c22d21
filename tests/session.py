"""What every run of the tests sets for itself: its folder, Ctrl-C and limits on CPU time."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.patience import PATIENCE

# Of the process that runs the test, so a busy machine fails none.
CPU_LIMIT_S = 180.0


def own_temporary_folder(config: pytest.Config) -> None:
    """Give this run a folder of its own for tmp_path, and remove it with the run.

    Pytest's own is shared by all runs of a user, each of which deletes old ones of the others: two
    that do so at once fail each other.
    """
    if config.option.basetemp is not None:
        return
    # Short: Unix sockets are made below it, and their paths end after 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="relkit-"))
    config.option.basetemp = folder / "t"
    me = os.getpid()

    def remove() -> None:
        # A worker that was forked from this process leaves the folder to the others.
        if os.getpid() == me:
            shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(remove)


def hear_ctrl_c() -> None:
    """Take SIGINT as a new Python does.

    A shell has it ignored for what it starts in the background, and Spark, whose tests may have run
    in the same process, leaves a handler of its own behind.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def patient_limits(items: list[pytest.Item]) -> None:
    """Time limits that tests set themselves are for a quiet machine too."""
    for item in items:
        limit = item.get_closest_marker("timeout")
        if limit is not None:
            item.add_marker(pytest.mark.timeout(limit.args[0] * PATIENCE), append=False)


@contextmanager
def cpu_limit(limit_s: float = CPU_LIMIT_S) -> Iterator[None]:
    """Fail a test that uses more CPU time in this process.

    Args:
        limit_s: user and system time, of all threads.
    """

    def fail(_signal: int, _frame: FrameType | None) -> None:
        pytest.fail(f"the test used more than {limit_s:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
