"""How long each rank's main thread has run, and waited for a core, at any moment of late.

The kernel counts both (`/proc/PID/task/PID/schedstat`), but only says what they are now. So a
thread of the launcher writes them down every few milliseconds: a rank that reads /proc in its
collectives makes all others wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.process.interruptible_wait import wait_for_end
from relkit.straggler.collect.event_rows import Rows
from relkit.straggler.model import Ints

_ABI = 1
_PROC = Path("/proc")
_RING_ROWS = 4096
# What is kept of a rank that finishes nothing, rows.
_MAX_KEPT = 8192
# An operation of a device is known some time after its end.
_KEEP_NS = 1_000_000_000
_FIRST_PERIOD_S = 0.010
_PERIODS_A_STEP = 24
_MIN_PERIOD_S, _MAX_PERIOD_S = 0.004, 0.020
_NOTHING: Ints = np.empty((0, 3), np.int64)


class _Control(ctypes.Structure):
    _fields_ = (
        ("period_ns", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("rows", ctypes.c_int64),
    )


def library_path() -> Path:
    """Where the library is, or would be once it is built."""
    return Path(str(files("relkit") / "_lib/librelkit_run_times.so"))


@lru_cache(maxsize=2)
def _load(path: Path) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(path))
        library.rkr_abi.restype = ctypes.c_uint32
        if library.rkr_abi() != _ABI:
            return None
    except (OSError, AttributeError):
        return None
    control, words = ctypes.POINTER(_Control), ctypes.c_void_p
    library.rkr_sample.argtypes = (control, words, ctypes.c_int32, words, ctypes.c_int64)
    library.rkr_sample.restype = None
    library.rkr_rows.argtypes = (control,)
    library.rkr_rows.restype = ctypes.c_int64
    return library


def at_moments(samples: Ints, moments: Ints) -> tuple[Ints, Ints]:
    """Run time and waiting time of a thread at these moments, from samples before and after them.

    What a thread ran and waited grows by at most the time that passes, and the kernel brings it up
    to date late while the thread runs: each later sample therefore says what it was *at least*, and
    the best of all of them counts. That is exact for a thread that slept before the moment and runs
    after it, as one does whose collective has just ended.

    Args:
        samples: (n, 3), ascending: moment, time on a core, time of waiting for one; ns.
        moments: (m,), ns.

    Returns:
        Two of (m,), ns; 0 for moments before the first sample.
    """
    run, wait = np.zeros(len(moments), np.int64), np.zeros(len(moments), np.int64)
    if not len(samples):
        return run, wait
    times, wanted = samples[:, 0], samples[:, 1] + samples[:, 2]
    known = moments >= times[0]
    after = np.searchsorted(times, moments[known], side="right")
    at_least = np.maximum.accumulate((wanted - times)[::-1])[::-1]
    later = at_least[np.minimum(after, len(times) - 1)] + moments[known]
    total = np.maximum(wanted[after - 1], np.where(after < len(times), later, 0))
    # How it was divided between two samples is not known: evenly. So neither ever goes back.
    divided = np.interp(total - wanted[0], wanted - wanted[0], samples[:, 1] - samples[0, 1])
    run[known] = samples[0, 1] + divided.astype(np.int64)
    wait[known] = total - run[known]
    return run, wait


class _Sampler:
    """One thread that reads these files until it is told to stop."""

    def __init__(self, library: ctypes.CDLL, descriptors: list[int], period_s: float) -> None:
        self._library = library
        self._files = np.array(descriptors, np.int32)
        self._ring = np.zeros((_RING_ROWS, 1 + 2 * len(descriptors)), np.int64)
        self._control = _Control(int(period_s * 1e9), 0, 0)
        self._read = 0
        self._thread = threading.Thread(target=self._work, name="relkit-run-times", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        self._library.rkr_sample(
            ctypes.byref(self._control), self._files.ctypes.data, len(self._files),
            self._ring.ctypes.data, _RING_ROWS,
        )  # fmt: skip

    def set_period(self, period_s: float) -> None:
        self._control.period_ns = int(period_s * 1e9)

    def take(self) -> Ints:
        """Rows since the last call, (n, 1 + 2 files); what was overwritten is left out."""
        written = self._library.rkr_rows(ctypes.byref(self._control))
        wanted = np.arange(max(self._read, written - _RING_ROWS), written)
        rows = self._ring[wanted % _RING_ROWS]
        now_written = self._library.rkr_rows(ctypes.byref(self._control))
        self._read = written
        # The row after the newest may be half written.
        whole: Ints = rows[wanted > now_written - _RING_ROWS]
        return whole

    def stop(self) -> None:
        self._control.stop = 1
        wait_for_end(self._thread)


class RunTimes:
    """Fills in what ranks' main threads had run and waited when each of their operations ended.

    Args:
        proc: where /proc is mounted.
    """

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc, self._period_s = proc, _FIRST_PERIOD_S
        self._descriptors: dict[int, int] = {}
        self._samples: dict[int, Ints] = {}
        self._sampler: _Sampler | None = None

    def watch(self, pids: tuple[int, ...]) -> None:
        """Look at the main threads of these processes, and at no others."""
        if set(pids) == set(self._samples):
            return
        self._stop()
        for pid in self._descriptors.keys() - set(pids):
            os.close(self._descriptors.pop(pid))
        for pid in set(pids) - self._descriptors.keys():
            with contextlib.suppress(OSError):
                path = self._proc / str(pid) / "task" / str(pid) / "schedstat"
                self._descriptors[pid] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._samples = {pid: self._samples.get(pid, _NOTHING) for pid in pids}
        library = _load(library_path())
        if library is not None and self._descriptors:
            self._sampler = _Sampler(library, list(self._descriptors.values()), self._period_s)

    def set_step(self, step_s: float) -> None:
        """Steps take about so long: long ones need few samples."""
        period_s = min(_MAX_PERIOD_S, max(_MIN_PERIOD_S, step_s / _PERIODS_A_STEP))
        if not 0.8 < period_s / self._period_s < 1.25:
            self._period_s = period_s
            if self._sampler is not None:
                self._sampler.set_period(period_s)

    def fill(self, pid: int, rows: Rows) -> None:
        """Set run_ns and wait_ns of operations just read; 0 where that is not known."""
        self._pull()
        samples = np.concatenate([self._samples.get(pid, _NOTHING), self._now(pid)])
        if not len(rows) or not len(samples):
            return
        rows["run_ns"], rows["wait_ns"] = at_moments(samples, rows["end_ns"])
        old = np.searchsorted(samples[:, 0], int(rows["end_ns"].max()) - _KEEP_NS)
        self._samples[pid] = samples[max(0, old - 1) :]

    def close(self) -> None:
        """Let go of all files."""
        self.watch(())

    def _stop(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
            self._pull()
            self._sampler = None

    def _now(self, pid: int) -> Ints:
        """One more sample, after everything that was read before it."""
        descriptor = self._descriptors.get(pid)
        if descriptor is None:
            return _NOTHING
        moment = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        try:
            words = os.pread(descriptor, 96, 0).split()
        except OSError:
            return _NOTHING
        return np.array([[moment, int(words[0]), int(words[1])]]) if len(words) > 1 else _NOTHING

    def _pull(self) -> None:
        if self._sampler is None:
            return
        rows = self._sampler.take()
        if not len(rows):
            return
        for place, pid in enumerate(self._descriptors):
            new: npt.NDArray[Any] = rows[:, [0, 1 + 2 * place, 2 + 2 * place]]
            new = new[new[:, 1] >= 0]
            kept = self._samples[pid]
            # A sample taken on request may be newer than what the thread wrote before it.
            samples = np.concatenate([kept, new])[-_MAX_KEPT:]
            self._samples[pid] = samples[np.argsort(samples[:, 0], kind="stable")]
