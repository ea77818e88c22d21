"""A signal is noticed while the main thread waits for another one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from relkit.result_of import result_of


def test_it_gives_what_the_future_gives_or_raises() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert result_of(threads.submit(max, 3, 4)) == 4
        with pytest.raises(ZeroDivisionError):
            result_of(threads.submit(divmod, 3, 0))


@pytest.mark.timeout(20)
def test_a_signal_that_does_not_wake_the_main_thread_is_noticed() -> None:
    never: Future[None] = Future()
    over = threading.Event()
    main = threading.get_ident()

    def interrupt() -> None:
        while not _waits_in_result_of(main):
            os.sched_yield()
        # The kernel may give a signal to any thread, and this one is not the main thread.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        over.wait()

    with ThreadPoolExecutor(1) as threads:
        try:
            threads.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                result_of(never)
        finally:
            over.set()


def _waits_in_result_of(thread: int) -> bool:
    frames = traceback.StackSummary.extract(traceback.walk_stack(sys._current_frames()[thread]))
    names = [frame.name for frame in frames]
    return names[0] == "wait" and "result_of" in names
