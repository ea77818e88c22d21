"""Makes blocked collectives of a process return with an error."""

from __future__ import annotations

import time
from pathlib import Path

from relkit.errors import CaptureFailed
from relkit.hook import layout, request
from relkit.hook.capture import ensure_handler
from relkit.hook.interruptible import Interruptible
from relkit.hook.model import HookState
from relkit.hook.state_file import open_state_file
from relkit.hook.threads import thread_statuses

_POLL_S = 0.0005


def release(path: Path, state: HookState, deadline_s: float) -> int:
    """Have the hook end the process's blocked communication, so that survivors can save.

    It shuts gloo's connections, and aborts the communicators of NCCL and its twins. Listening
    sockets and the rendezvous store's are left alone. Every collective and every send or receive
    fails from then on: the process has to build new groups.

    Args:
        path: the process's recorder file; state: what read_state made of it.
        deadline_s: longest time to wait for the answer, seconds.

    Returns:
        The number of connections that were shut and communicators that were aborted.

    Raises:
        CaptureFailed: the process is gone, stopped, or did not answer in time.
        BadDump: the recorder file has become unreadable.
    """
    deadline = time.monotonic() + deadline_s
    answered_at = layout.offset_of(layout.HEADER, "released_generation")
    count_at = layout.offset_of(layout.HEADER, "released")
    with open_state_file(path) as file:
        number = int(file.header["request_signal"])
        if not 0 < number <= 64:
            raise CaptureFailed(f"the hook in process {state.pid} takes no requests")
        ensure_handler(state, number)
        generation = request.new_generation()
        ask_one_thread(state.pid, number, layout.REQUEST_RELEASE, generation, "the release request")
        while True:
            if file.word(answered_at, "<u4") == generation:
                return file.word(count_at, "<u4")
            if time.monotonic() >= deadline:
                raise CaptureFailed(
                    f"process {state.pid} did not answer the release request in time"
                )
            time.sleep(_POLL_S)


def ask_one_thread(pid: int, number: int, kind: int, generation: int, what: str) -> None:
    """Send the request to the first thread that a signal reaches and does not harm.

    Args:
        pid: process; number: the hook's signal, which the process is known to handle.
        kind: layout.REQUEST_...; generation: of the request.
        what: the request in words, for the error.

    Raises:
        CaptureFailed: the process is gone, or no thread can take it.
    """
    try:
        threads = thread_statuses(pid)
    except ProcessLookupError as error:
        raise CaptureFailed(str(error)) from error
    interruptible = Interruptible(pid)
    for thread in threads:
        if (
            thread.state not in "DTtZX"
            and not thread.blocks(number)
            and not interruptible.why_not(thread.os_thread_id)
        ):
            try:
                request.send(pid, thread.os_thread_id, number, kind, generation)
            except OSError:
                continue
            return
    raise CaptureFailed(f"no thread of process {pid} can take {what}")
