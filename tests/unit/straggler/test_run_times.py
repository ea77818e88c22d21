"""What a main thread had run and waited at a moment, from samples beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from relkit.straggler.collect.event_rows import ROW, Rows
from relkit.straggler.collect.run_times import RunTimes, at_moments
from relkit.straggler.model import Ints
from tests.waiting import eventually

MS = 1_000_000

# Runs and sleeps in turn; a line of monotonic time and own run time after each of both.
TURNS = """
import time
for number in range(25):
    end = time.thread_time_ns() + 12_000_000
    while time.thread_time_ns() < end:
        pass
    print(time.monotonic_ns(), time.thread_time_ns(), flush=True)
    time.sleep(0.02)
    print(time.monotonic_ns(), time.thread_time_ns(), flush=True)
print("done", flush=True)
input()
"""


def ms(*rows: tuple[float, ...]) -> Ints:
    return (np.array(rows) * MS).astype(np.int64)


def at(samples: Ints, *moments: float) -> list[tuple[float, float]]:
    run, wait = at_moments(samples, ms(moments)[0])
    return list(zip((run / MS).tolist(), (wait / MS).tolist(), strict=True))


def test_a_thread_that_wakes_between_two_samples_ran_after_it_woke() -> None:
    samples = ms((100, 50, 3), (110, 54, 3))
    assert at(samples, 100, 103, 106, 108, 110) == [(50, 3), (50, 3), (50, 3), (52, 3), (54, 3)]


def test_a_sample_that_the_kernel_had_not_brought_up_to_date_is_seen_by_the_next() -> None:
    # It ran from 100 on; at 104 the kernel still said what was so at 101.
    samples = ms((100, 50, 0), (104, 51, 0), (108, 58, 0), (112, 58, 0))
    assert at(samples, 104, 106, 108) == [(54, 0), (56, 0), (58, 0)]
    # Between two samples of which the second is that old, the third one tells.
    assert at(samples, 102) == [(52, 0)]


def test_running_and_waiting_are_divided_evenly_and_never_go_back() -> None:
    samples = ms((0, 10, 10), (10, 12, 18), (20, 22, 18), (30, 22, 18))
    assert at(samples, 5) == [(11, 14)]
    moments = np.arange(0, 30 * MS, MS // 8)
    run, wait = at_moments(samples, moments)
    assert (np.diff(run) >= 0).all()
    assert (np.diff(wait) >= 0).all()
    assert (np.diff(run + wait) <= MS // 8).all()


def test_before_the_first_sample_and_without_any_nothing_is_known() -> None:
    assert at(ms((100, 50, 3)), 99, 101) == [(0, 0), (50, 3)]
    assert at(np.empty((0, 3), np.int64), 5) == [(0, 0)]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", TURNS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running
        running.kill()


def rows_at(*moments_ns: int) -> Rows:
    rows = np.zeros(len(moments_ns), ROW)
    rows["end_ns"] = moments_ns
    return rows


def test_what_a_process_says_of_itself_is_what_is_read_of_it(
    child: subprocess.Popen[str],
) -> None:
    assert child.stdout is not None
    run_times = RunTimes()
    run_times.watch((child.pid,))
    run_times.set_step(0.03)
    told = [tuple(map(int, line.split())) for line in iter(child.stdout.readline, "done\n")]
    # What is asked may be the newest that the thread has: it sleeps, so the kernel knows all of it.
    rows = rows_at(*(moment for moment, _ in told[5:]))
    run_times.fill(child.pid, rows)
    run = rows["run_ns"].astype(np.int64)
    assert (rows["run_ns"] > 0).all()
    assert (np.diff(run) >= 0).all()
    assert (np.diff(rows["wait_ns"]) >= 0).all()
    own = np.array([ran for _, ran in told[5:]])
    # The kernel counts in ticks of up to 10 ms; thread_time leaves out nothing.
    assert np.median(np.abs(run - own)) < 10 * MS
    assert abs((run[-1] - run[0]) - (own[-1] - own[0])) < 0.25 * (own[-1] - own[0])
    run_times.close()


def test_ranks_come_and_go_and_no_thread_or_file_stays(child: subprocess.Popen[str]) -> None:
    files = len(list(Path("/proc/self/fd").iterdir()))
    run_times = RunTimes()
    run_times.watch((os.getpid(),))
    run_times.watch((os.getpid(), child.pid))
    rows = rows_at(time.monotonic_ns())

    def known() -> bool:
        rows["end_ns"] = time.monotonic_ns()
        run_times.fill(child.pid, rows)
        return int(rows["run_ns"][0]) > 0

    eventually(known, "the child's run time")
    child.kill()
    child.wait()
    run_times.fill(child.pid, rows_at(time.monotonic_ns()))
    run_times.watch((os.getpid(),))
    mine = rows_at(time.monotonic_ns())
    run_times.fill(os.getpid(), mine)
    assert int(mine["run_ns"][0]) > 0
    run_times.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert "relkit-run-times" not in {thread.name for thread in threading.enumerate()}


def test_where_the_kernel_does_not_count_nothing_is_known(tmp_path: Path) -> None:
    run_times = RunTimes(tmp_path)
    run_times.watch((os.getpid(),))
    rows = rows_at(time.monotonic_ns())
    run_times.fill(os.getpid(), rows)
    assert (int(rows["run_ns"][0]), int(rows["wait_ns"][0])) == (0, 0)
    run_times.close()
