"""How often a launcher looks, and how often it writes down what it knows."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from relkit.launch.straggler.poll_interval import MIN_S, QUICK_S, SELDOM_S, PollInterval
from relkit.straggler.transport import live_file


def test_looks_become_rare_where_nobody_waits_for_them() -> None:
    pace = PollInterval()
    waits_s = [pace.next_s(fill=0.01, wanted=False) for _ in range(4)]
    assert waits_s == [2 * QUICK_S, 4 * QUICK_S, SELDOM_S, SELDOM_S]
    assert pace.next_s(fill=0.01, wanted=True) == QUICK_S


@pytest.mark.parametrize("fill", [0.5, 1.0, 3.0])
def test_a_ring_that_fills_fast_is_looked_at_often(fill: float) -> None:
    pace = PollInterval()
    pace.next_s(fill=0.0, wanted=False)
    before_s = pace.interval_s
    # What comes in until the next look leaves most of the ring untouched.
    assert fill * pace.next_s(fill=fill, wanted=False) / before_s <= max(0.25, MIN_S * fill)
    for _ in range(20):
        pace.next_s(fill=fill, wanted=True)
    assert pace.interval_s == MIN_S


def test_somebody_who_asks_is_remembered_for_a_while(tmp_path: Path) -> None:
    assert not live_file.is_asked(tmp_path)
    live_file.ask(tmp_path)
    assert live_file.is_asked(tmp_path)
    (asked,) = tmp_path.iterdir()
    assert asked.stat().st_mode & 0o777 == 0o600
    long_ago_s = time.time() - 2 * live_file.ASKED_FOR_S
    os.utime(asked, (long_ago_s, long_ago_s))
    assert not live_file.is_asked(tmp_path)


def test_who_may_not_ask_reads_what_is_there(tmp_path: Path) -> None:
    live_file.ask(tmp_path / "gone")
    assert not live_file.is_asked(tmp_path / "gone")


def test_news_end_the_wait(tmp_path: Path) -> None:
    written = threading.Event()

    def launcher() -> None:
        while not live_file.is_asked(tmp_path):
            written.wait(0.01)
        (tmp_path / live_file.FILE).write_bytes(b"news")
        written.set()

    thread = threading.Thread(target=launcher)
    thread.start()
    began_s = time.monotonic()
    live_file.wait_for_news(tmp_path, patience_s=30.0)
    assert time.monotonic() - began_s < 30.0
    assert written.wait(10)
    thread.join(10)


def test_a_launcher_that_is_gone_is_not_waited_for_long(tmp_path: Path) -> None:
    live_file.wait_for_news(tmp_path, patience_s=0.01)
    assert live_file.is_asked(tmp_path)
    assert not (tmp_path / live_file.FILE).exists()
