"""What may have kept a rank besides its own work: read from the kernel, as this process does it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from relkit.process import procfs
from relkit.straggler.collect import excuses
from relkit.straggler.collect.excuses import Excuses
from relkit.straggler.model import EXCUSED, OFF_CPU, PARTS, UNATTRIBUTED, Floats

Looks = list[tuple[dict[int, float], int | None]]
LENGTH_S = np.array([0.1, 0.2])


def steps(slept_s: float) -> Floats:
    """Two steps of 80 and 160 ms of local time, in which the main thread slept for so long."""
    parts = np.zeros((len(PARTS), 2))
    parts[UNATTRIBUTED] = 0.8 * LENGTH_S
    parts[OFF_CPU] = slept_s
    parts[EXCUSED] = np.nan
    return parts


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """What the kernel says at each look: seconds that threads have waited, bytes written."""
    said: Looks = []
    monkeypatch.setattr(excuses, "_waited_s", lambda _pid: said[0][0])
    monkeypatch.setattr(procfs, "written_bytes", lambda _pid: said.pop(0)[1])
    return said


def excused_after(looks: Looks, every_s: float = 1.0) -> Excuses:
    watched = Excuses()
    for number in range(len(looks)):
        watched.look(1, 100.0 + every_s * number)
    return watched


def test_nothing_excuses_a_rank_before_the_second_look(
    looks: Looks,
) -> None:
    looks += [({7: 1000.0}, 10**12)]
    assert excused_after(looks).excused_s(LENGTH_S, steps(0.05)).tolist() == [0.0, 0.0]


def test_helpers_that_wait_excuse_no_more_than_the_rank_slept(
    looks: Looks,
) -> None:
    # A thread that is new counts with all that it waited.
    looks += [({7: 1.0}, 0), ({7: 1.1, 8: 0.2}, 0)]
    watched = excused_after(looks)
    assert watched.excused_s(LENGTH_S, steps(0.05)) == pytest.approx([0.03, 0.05])
    assert watched.excused_s(LENGTH_S, steps(0.0)).tolist() == [0.0, 0.0]
    # Where it is not known how long it slept, it may have slept all the time.
    assert watched.excused_s(LENGTH_S, steps(np.nan)) == pytest.approx([0.03, 0.06])


@pytest.mark.parametrize(
    ("written", "every_s", "saves"),
    [(2_000_000, 1.0, True), (900_000, 1.0, False), (1_500_000, 4.0, False), (None, 1.0, False)],
)
def test_what_is_written_fast_is_a_save(
    looks: Looks, written: int | None, every_s: float, saves: bool
) -> None:
    looks += [({}, 0), ({}, written)]
    excused_s = excused_after(looks, every_s).excused_s(LENGTH_S, steps(0.0))
    assert excused_s == pytest.approx(0.8 * LENGTH_S if saves else [0.0, 0.0])


def test_a_rank_is_looked_at_on_a_busy_host_too(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a look takes long, by the clock, and little of a core."""
    clock_s = itertools.count(100.0)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock_s)))
    monkeypatch.setattr(time, "thread_time", lambda: 5.0)
    looks += [({}, 0), ({}, 2_000_000)]
    assert excused_after(looks).excused_s(LENGTH_S, steps(0.0)) == pytest.approx(0.8 * LENGTH_S)
    assert not looks


def test_looks_at_many_threads_are_taken_the_less_often(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_s = itertools.count()
    # A look takes 10 ms of a core: the next one comes after 4 s.
    monkeypatch.setattr(time, "thread_time", lambda: 0.01 * next(used_s))
    looks += [({}, 0)] * 10
    watched = Excuses()
    for number in range(16):
        watched.look(1, 100.5 + number)
    assert len(looks) == 6


def test_where_proc_shows_others_by_these_numbers_nothing_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a PID namespace that was made without mounting /proc again."""
    monkeypatch.setattr(procfs, "is_own", lambda: False)
    assert excuses._waited_s(os.getpid()) == {}
    assert procfs.written_bytes(os.getpid()) is None


def test_the_kernel_counts_what_is_written(tmp_path: Path) -> None:
    before = procfs.written_bytes(os.getpid())
    assert before is not None
    with (tmp_path / "saved").open("wb") as stream:
        stream.write(bytes(3 << 20))
        stream.flush()
        os.fsync(stream.fileno())
    after = procfs.written_bytes(os.getpid())
    if after == before:
        pytest.skip("files of this folder are in memory")
    assert after is not None
    assert after - before >= 3 << 20
    assert procfs.written_bytes(1 << 30) is None


def test_other_threads_and_children_count_and_the_main_thread_does_not() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        waited_s = excuses._waited_s(os.getpid())
        assert {thread.native_id, child.pid} <= set(waited_s)
        assert os.getpid() not in waited_s
    finally:
        over.set()
        thread.join()
        child.kill()
        child.communicate()
