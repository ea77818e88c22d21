"""The monitor thread: whatever happens in a tick, it is reported, and the job stays watched."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from relkit.hang.model import RankView
from relkit.launch.hang import monitor as module
from relkit.launch.hang.attempt import WatchedRanks
from relkit.launch.hang.monitor import MAX_RESTARTS, Monitor
from relkit.launch.hang.observe import Observer
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings

WAIT_S = 30.0


class FailingObserver(Observer):
    """Calls `fail` at each look, and counts the looks."""

    def __init__(self, fail: Callable[[int], None]) -> None:
        super().__init__(None)
        self._fail = fail
        self._count = 0
        self.looks: queue.Queue[int] = queue.Queue()

    def views(
        self, ranks: object, ends: object = None, *, recent: bool = True
    ) -> tuple[RankView, ...]:
        self._count += 1
        self.looks.put(self._count)
        self._fail(self._count)
        return ()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tick_interval_s", lambda _: 0.001)


@pytest.fixture
def lines() -> queue.Queue[str]:
    return queue.Queue()


@pytest.fixture
def monitor(lines: queue.Queue[str]) -> Iterator[Monitor]:
    monitor = Monitor(
        MonitorSettings(10.0, OnHang.REPORT),
        publish=lambda *_: None,
        write_dumps=lambda _: None,
        log=lines.put,
    )
    yield monitor
    monitor.close()


def attempt(observer: Observer) -> WatchedRanks:
    return WatchedRanks(Attempt("job", 2), observer, MemoryMailbox(), lambda: (), dict)


def test_an_unexpected_error_is_logged_and_monitoring_goes_on(
    monitor: Monitor, lines: queue.Queue[str]
) -> None:
    def fail(look: int) -> None:
        if look == 2:
            raise OverflowError("Python int too large\nto convert")

    observer = FailingObserver(fail)
    monitor.begin(attempt(observer))
    assert [observer.looks.get(timeout=WAIT_S) for _ in range(4)] == [1, 2, 3, 4]
    line = lines.get(timeout=WAIT_S)
    assert line == "monitoring stopped: OverflowError: Python int too large; it starts again"
    assert lines.empty()


def test_one_that_always_fails_stays_off_and_says_so(
    monitor: Monitor, lines: queue.Queue[str]
) -> None:
    def fail(_: int) -> None:
        raise ZeroDivisionError

    monitor.begin(attempt(FailingObserver(fail)))
    logged = [lines.get(timeout=WAIT_S) for _ in range(MAX_RESTARTS + 1)]
    assert all(line.endswith("it starts again") for line in logged[:-1])
    assert logged[-1].endswith("it stays off, so hangs are not detected any more")
    monitor._thread.join(WAIT_S)
    # Nobody looks: that is not "it does not hang".
    assert monitor.judged_hung is None
    # The next attempt of the job is watched again.
    observer = FailingObserver(lambda _: None)
    monitor.begin(attempt(observer))
    assert observer.looks.get(timeout=WAIT_S) == 1
    assert monitor.judged_hung is False


def test_the_end_waits_for_a_report_although_the_store_does_not_answer() -> None:
    class Stuck(MemoryMailbox):
        is_stuck = True

    writes, goes_on = threading.Event(), threading.Event()
    written: list[str] = []

    def publish(*_: object) -> None:
        writes.set()
        goes_on.wait(WAIT_S)
        written.append("report.json")

    monitor = Monitor(
        MonitorSettings(10.0, OnHang.REPORT),
        publish=publish,
        write_dumps=lambda _: None,
        log=lambda _: None,
    )
    observer = FailingObserver(lambda _: None)
    monitor.begin(WatchedRanks(Attempt("job", 2), observer, Stuck(), lambda: (), dict))
    monitor.failed("rank 0 failed")
    assert writes.wait(WAIT_S)
    monitor.pause()
    threading.Timer(0.3, goes_on.set).start()
    monitor.close()
    assert written


def test_what_is_still_to_be_done_is_done_last(lines: queue.Queue[str]) -> None:
    monitor = Monitor(
        MonitorSettings(10.0, OnHang.REPORT),
        publish=lambda *_: None,
        write_dumps=lambda _: None,
        log=lines.put,
        finish=lambda: lines.put("finished"),
    )
    monitor.begin(attempt(FailingObserver(lambda look: lines.put(f"look {look}"))))
    assert lines.get(timeout=WAIT_S) == "look 1"
    monitor.close()
    seen = [lines.get(timeout=WAIT_S)]
    while seen[-1] != "finished":
        seen.append(lines.get(timeout=WAIT_S))
    assert lines.empty()
