"""Who has the cores of a host: the job's processes, or others."""

from __future__ import annotations

import time

import pytest

from relkit.straggler.collect import host_loads
from relkit.straggler.collect.host_loads import HostLoadMeter, busy_time


def test_what_the_ranks_and_their_children_run_is_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used_s = {1: 50.0, 2: 8.0, 11: 0.0}
    busy_s = 1000.0
    monkeypatch.setattr(host_loads, "busy_time", lambda: (busy_s, 4))
    monkeypatch.setattr(host_loads, "cpu_s", lambda pid: used_s[pid])
    monkeypatch.setattr(host_loads, "descendants", lambda pid: (11,) if pid == 1 else ())
    meter = HostLoadMeter()
    meter.look([1], 100.0)
    before = meter.load
    assert before is None
    # Rank 2 is new, and so is all that it has run.
    used_s |= {1: 54.0, 2: 9.0, 11: 2.0}
    busy_s = 1030.0
    meter.look([1, 2], 110.0)
    load = meter.load
    assert load is not None
    assert (load.cores, load.busy_cores) == (4, 3.0)
    assert load.own_cores == pytest.approx(1.5)
    assert load.other_cores == pytest.approx(1.5)
    # It is not looked at more often than each few seconds.
    busy_s = 9999.0
    meter.look([1, 2], 111.0)
    assert meter.load == load


def test_what_has_ended_stays_in_the_sum_and_is_not_kept_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job may start a helper at each step, for weeks."""
    alive: tuple[int, ...] = ()
    monkeypatch.setattr(host_loads, "busy_time", lambda: (1000.0, 4))
    monkeypatch.setattr(host_loads, "cpu_s", lambda pid: 1.0 if pid in (1, *alive) else 0.0)
    monkeypatch.setattr(host_loads, "descendants", lambda _: alive)
    meter = HostLoadMeter()
    meter.look([1], 10.0)
    for number in range(1, 101):
        alive = (number + 1,)
        meter.look([1], 10.0 + 1000.0 * number)
    assert len(meter._own_s) == 2
    assert meter.load is not None
    assert meter.load.own_cores * 100_000.0 == pytest.approx(100.0)
    # One that lives, and is nobody's child for a moment, is not counted anew.
    alive, last = (), alive
    monkeypatch.setattr(host_loads, "cpu_s", lambda _: 1.0)
    meter.look([1], 200_010.0)
    alive = last
    meter.look([1], 300_010.0)
    assert meter.load.own_cores * 300_000.0 == pytest.approx(100.0)


def test_a_look_at_many_threads_is_taken_the_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    used_s = iter(range(1000))

    def descendants(pid: int) -> tuple[int, ...]:
        looks.append(pid)
        return ()

    monkeypatch.setattr(host_loads, "busy_time", lambda: (1000.0, 4))
    monkeypatch.setattr(host_loads, "cpu_s", lambda _: 0.0)
    monkeypatch.setattr(host_loads, "descendants", descendants)
    # A look takes a second of a core.
    monkeypatch.setattr(time, "thread_time", lambda: float(next(used_s)))
    meter = HostLoadMeter()
    for now_s in range(10, 1210, 5):
        meter.look([1], float(now_s))
    assert len(looks) == 3


def test_a_host_that_says_nothing_has_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_loads, "busy_time", lambda: (0.0, 0))
    meter = HostLoadMeter()
    for now_s in (1.0, 10.0):
        meter.look([1], now_s)
    assert meter.load is None


def test_the_kernel_says_how_busy_it_is() -> None:
    busy_s, cores = busy_time()
    assert cores >= 1
    assert busy_s > 0.0
