"""A signal is noticed while the main thread waits for another one."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue

import pytest

from relkit.process import interruptible_wait
from relkit.process.interruptible_wait import (
    is_done_within,
    is_set_within,
    next_of,
    result_of,
    wait_for_end,
    wait_readable,
)


def test_a_result_is_what_the_future_gives_or_raises() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert result_of(threads.submit(max, 3, 4)) == 4
        with pytest.raises(ZeroDivisionError):
            result_of(threads.submit(divmod, 3, 0))


def test_waits_end_with_what_they_wait_for_and_with_time() -> None:
    future: Future[int] = Future()
    event = threading.Event()
    queue: SimpleQueue[int] = SimpleQueue()
    began_s = time.monotonic()
    assert not is_done_within(future, 0.25)
    assert not is_set_within(event, 0.25)
    with pytest.raises(Empty):
        next_of(queue, 0.6)
    assert time.monotonic() - began_s >= 1.1
    assert not is_done_within(future, 0.0)
    assert not is_set_within(event, 0.0)
    with pytest.raises(Empty):
        next_of(queue, 0.0)

    def finish() -> None:
        future.set_result(3)
        event.set()
        queue.put(4)

    timer = threading.Timer(0.2, finish)
    timer.start()
    assert is_done_within(future, math.inf)
    assert is_set_within(event, math.inf)
    assert next_of(queue, math.inf) == 4
    wait_for_end(timer)
    assert not timer.is_alive()


def _for_a_thread(over: threading.Event) -> None:
    thread = threading.Thread(target=over.wait)
    thread.start()
    wait_for_end(thread)


def _for_input(_: threading.Event) -> None:
    output, source = os.pipe()
    try:
        wait_readable(output, math.inf)
    finally:
        os.close(source)
        os.close(output)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "wait",
    [
        lambda _: result_of(Future()),
        lambda _: is_done_within(Future(), math.inf),
        lambda _: is_set_within(threading.Event(), math.inf),
        lambda _: next_of(SimpleQueue[int](), math.inf),
        _for_a_thread,
        _for_input,
    ],
    ids=["result", "done", "set", "queue", "end", "input"],
)
def test_a_signal_that_does_not_wake_the_main_thread_is_noticed(
    wait: Callable[[threading.Event], object],
) -> None:
    over = threading.Event()
    main = threading.get_ident()

    def interrupt() -> None:
        while not _waits(main):
            os.sched_yield()
        # The kernel may give a signal to any thread, and this one is not the main thread.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        over.wait()

    with ThreadPoolExecutor(1) as threads:
        try:
            threads.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                wait(over)
        finally:
            over.set()


def _waits(thread: int) -> bool:
    frames = traceback.StackSummary.extract(traceback.walk_stack(sys._current_frames()[thread]))
    if not any(frame.filename == interruptible_wait.__file__ for frame in frames):
        return False
    innermost, line = frames[0], frames[0].line or ""
    # In the standard library: its Python, or its C, which has no frame of its own.
    return innermost.filename == threading.__file__ or "queue.get(" in line or "poll(" in line
