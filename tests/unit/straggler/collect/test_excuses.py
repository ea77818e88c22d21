"""What may have kept a rank besides its own work: read from the kernel, as this process does it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from relkit.straggler.collect import excuses
from relkit.straggler.collect.excuses import Excuses, written_bytes
from relkit.straggler.model import EXCUSED, OFF_CPU, PARTS, UNATTRIBUTED, Floats

LENGTH_S = np.array([0.1, 0.2])


def steps(slept_s: float) -> Floats:
    """Two steps of 80 and 160 ms of local time, in which the main thread slept for so long."""
    parts = np.zeros((len(PARTS), 2))
    parts[UNATTRIBUTED] = 0.8 * LENGTH_S
    parts[OFF_CPU] = slept_s
    parts[EXCUSED] = np.nan
    return parts


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[int, int], int]]:
    """What the kernel says at each look: ns that threads have waited, bytes written."""
    said: list[tuple[dict[int, int], int]] = []
    monkeypatch.setattr(excuses, "_waited_ns", lambda _pid: said[0][0])
    monkeypatch.setattr(excuses, "written_bytes", lambda _pid: said.pop(0)[1])
    return said


def excused_after(looks: list[tuple[dict[int, int], int]], every_s: float = 1.0) -> Excuses:
    watched = Excuses()
    for number in range(len(looks)):
        watched.look(1, 100.0 + every_s * number)
    return watched


def test_nothing_excuses_a_rank_before_the_second_look(
    looks: list[tuple[dict[int, int], int]],
) -> None:
    looks += [({7: 10**12}, 10**12)]
    assert excused_after(looks).excused_s(LENGTH_S, steps(0.05)).tolist() == [0.0, 0.0]


def test_helpers_that_wait_excuse_no_more_than_the_rank_slept(
    looks: list[tuple[dict[int, int], int]],
) -> None:
    # A thread that is new counts with all that it waited.
    looks += [({7: 10**9}, 0), ({7: 10**9 + 10**8, 8: 2 * 10**8}, 0)]
    watched = excused_after(looks)
    assert watched.excused_s(LENGTH_S, steps(0.05)) == pytest.approx([0.03, 0.05])
    assert watched.excused_s(LENGTH_S, steps(0.0)).tolist() == [0.0, 0.0]
    # Where it is not known how long it slept, it may have slept all the time.
    assert watched.excused_s(LENGTH_S, steps(np.nan)) == pytest.approx([0.03, 0.06])


@pytest.mark.parametrize(
    ("written", "every_s", "saves"),
    [(2_000_000, 1.0, True), (900_000, 1.0, False), (1_500_000, 4.0, False), (-1, 1.0, False)],
)
def test_what_is_written_fast_is_a_save(
    looks: list[tuple[dict[int, int], int]], written: int, every_s: float, saves: bool
) -> None:
    looks += [({}, 0), ({}, written)]
    excused_s = excused_after(looks, every_s).excused_s(LENGTH_S, steps(0.0))
    assert excused_s == pytest.approx(0.8 * LENGTH_S if saves else [0.0, 0.0])


def test_the_kernel_counts_what_is_written(tmp_path: Path) -> None:
    before = written_bytes(os.getpid())
    with (tmp_path / "saved").open("wb") as stream:
        stream.write(bytes(3 << 20))
        stream.flush()
        os.fsync(stream.fileno())
    if before >= 0 and written_bytes(os.getpid()) == before:
        pytest.skip("files of this folder are in memory")
    assert written_bytes(os.getpid()) - before >= 3 << 20 or before < 0
    assert written_bytes(1 << 30) == -1


def test_other_threads_and_children_count_and_the_main_thread_does_not() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        waited_ns = excuses._waited_ns(os.getpid())
        assert {thread.native_id, child.pid} <= set(waited_ns)
        assert os.getpid() not in waited_ns
    finally:
        over.set()
        thread.join()
        child.kill()
        child.communicate()
