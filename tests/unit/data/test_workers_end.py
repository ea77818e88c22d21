"""Encoding processes end with their pool, also where one does not answer and Ctrl-C comes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback

import pytest

from relkit.data.documents import Chunk
from relkit.data.tokenizer import TokenizerSpec
from relkit.data.workers import Workers

CHUNK = Chunk(b'{"text": "ab"}\n', "here", "line", 1, 0)


@pytest.mark.timeout(60)
def test_ctrl_c_while_the_pool_waits_for_a_worker_that_is_stopped() -> None:
    """The pool waited for ten minutes, and the signal with it."""
    workers = Workers(
        TokenizerSpec("CharLevelTokenizer"), ["text"], is_eod_appended=False, workers=1
    )
    main = threading.get_ident()
    (child,) = workers._children
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    # As by a loop that ends before all chunks are there.
    asked = workers._threads.submit(workers._ask, CHUNK)

    def interrupt() -> None:
        while not (asked.running() and _closes(main)):
            os.sched_yield()
        # The kernel may give a signal to any thread.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        workers.close()
    thread.join()
    assert child.returncode == -signal.SIGKILL


def _closes(thread: int) -> bool:
    frames = traceback.StackSummary.extract(traceback.walk_stack(sys._current_frames()[thread]))
    return "close" in [frame.name for frame in frames]
