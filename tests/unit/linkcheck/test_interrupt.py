"""Ctrl-C ends all measurements that run at one time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from relkit.linkcheck.check import check_links
from relkit.linkcheck.model import Counter, Inventory, Measurement, Pair
from relkit.linkcheck.tool import stopping

GPUS = Inventory({socket: socket for socket in range(4)})
PAIRS = [Pair(0, 1), Pair(2, 3)]


class Endless:
    """A provider whose measurements last until they are stopped."""

    name = "endless"
    timeout_s = 60.0

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.was_stopped: list[bool] = []

    def look(self, timeout_s: float) -> Inventory:
        return GPUS

    def measure(self, source: int, target: int, timeout_s: float) -> Measurement:
        stop = stopping.get()
        assert stop is not None
        self.begun.set()
        self.was_stopped.append(stop.wait(timeout_s))
        return Measurement(source, target)

    def counters(self, timeout_s: float) -> tuple[Counter, ...]:
        return ()


@pytest.mark.timeout(30)
def test_ctrl_c_while_measurements_are_being_started_stops_those_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = Endless()
    submit = ThreadPoolExecutor.submit

    def interrupted(
        self: ThreadPoolExecutor, run: Callable[..., Measurement], *arguments: object
    ) -> Future[Measurement]:
        # Between the first measurement and the second.
        if provider.begun.is_set():
            raise KeyboardInterrupt
        future = submit(self, run, *arguments)
        assert provider.begun.wait(20)
        return future

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check_links(provider, provider.look(5.0), PAIRS, min_bandwidth_mb_s=1.0, is_concurrent=True)
    assert provider.was_stopped == [True]
