"""Calls for the thread that runs a selector."""

from __future__ import annotations

import os
import selectors

from relkit.net.call_queue import CallQueue


def test_a_call_wakes_the_selector_and_is_taken_once() -> None:
    with selectors.DefaultSelector() as selector:
        calls: CallQueue[float] = CallQueue(selector)
        assert selector.select(0) == []
        calls.put(lambda now_s: now_s + 1)
        ((key, _),) = selector.select(60)
        assert calls.owns(key.fd)
        calls.drain()
        assert [call(1.0) for call in calls.take()] == [2.0]
        assert selector.select(0) == []
        assert list(calls.take()) == []
        calls.close()


def test_more_calls_than_its_buffer_holds_are_all_taken() -> None:
    with selectors.DefaultSelector() as selector:
        calls: CallQueue[float] = CallQueue(selector)
        for _ in range(20_000):
            calls.put(lambda now_s: now_s)
        assert sum(call(1.0) for call in calls.take()) == 20_000
        calls.close()


def test_a_call_after_the_end_writes_to_no_other_file() -> None:
    with selectors.DefaultSelector() as selector:
        calls: CallQueue[float] = CallQueue(selector)
        calls.close()
        # The kernel gives the lowest free numbers: those that were just closed.
        read, write = os.pipe2(os.O_NONBLOCK)
        other_read, other_write = os.pipe2(os.O_NONBLOCK)
        calls.put(lambda now_s: now_s)
    for descriptor in (write, other_write):
        os.close(descriptor)
    for descriptor in (read, other_read):
        assert os.read(descriptor, 10) == b""
        os.close(descriptor)
