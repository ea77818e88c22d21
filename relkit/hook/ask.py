"""Gets a request to any one thread of a process that can take it."""

from __future__ import annotations

from relkit.errors import CaptureFailed
from relkit.hook import request
from relkit.hook.interruptible import Interruptible
from relkit.hook.threads import thread_statuses


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
