"""How a node whose workers are done waits for the other nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from relkit.launch.job.exchange import (
    ExchangeBroken,
    Mailbox,
    wait_for_notes,
    wait_for_thread,
)

_LOOK_S = 0.2
# The longest that the host of the store stays for launchers that are slower to leave, or that
# have not noticed a failure yet, s.
_STAY_S = 5.0
_ALL_DONE = "done/all"


def ended_key(node: int) -> str:
    """The name of the note that a node leaves when the job has failed there."""
    return f"ended/{node}"


def report_failure(
    notes: Mailbox, meet_no_more: Callable[[], None], is_host: Callable[[], bool]
) -> None:
    """Notify the other nodes; the host of the store stays until all have failed as well.

    Were it to leave first, the others would see a dead store instead of the failure.

    Args:
        meet_no_more: tells the others that this node comes to no further meeting.
        is_host: this launcher hosts the store.
    """

    def leave_note() -> None:
        try:
            notes.put(ended_key(notes.node), b"1")
            meet_no_more()
            if notes.nodes > 1 and is_host():
                ended = [ended_key(node) for node in range(notes.nodes)]
                wait_for_notes(notes, ended, _STAY_S)
        except ExchangeBroken:
            return

    # In a thread, as a call to a store that is cut off does not return.
    thread = threading.Thread(target=leave_note, name="relkit-ended", daemon=True)
    thread.start()
    wait_for_thread(thread, notes, 2 * _STAY_S)


def leave_store(notes: Mailbox, *, is_host: bool) -> None:
    """Of a job that has succeeded, let the launcher that hosts the store be the last to end.

    torch's client prints a page of C++ frames about each call to a store that has gone.

    Args:
        notes: this is the last call of all others to them.
        is_host: this launcher hosts the store.
    """
    others = [_left_key(node) for node in range(notes.nodes) if node != notes.node]
    if is_host:
        wait_for_notes(notes, others, _STAY_S)
    elif others:
        with suppress(ExchangeBroken):
            notes.put(_left_key(notes.node), b"1")


def _left_key(node: int) -> str:
    return f"left/{node}"


def wait_for_others(barrier: Callable[[], None], notes: Mailbox) -> None:
    """Run torch's exit barrier to its end, or until another node is known to have failed.

    torch waits for minutes inside its store's client, for nodes that will never come, and no
    signal is handled meanwhile. So it waits in a thread of its own, and signals are handled here.

    Args:
        barrier: torch's.
        notes: where nodes leave `ended_key`; not used by anybody else meanwhile.
    """

    has_failed = threading.Event()
    waiting = threading.Thread(target=barrier, name="relkit-exit-barrier", daemon=True)
    looking = threading.Thread(
        target=_look, args=(notes, waiting, has_failed), name="relkit-exit-look", daemon=True
    )
    waiting.start()
    looking.start()
    while waiting.is_alive() and not has_failed.is_set():
        waiting.join(_LOOK_S)


def wait_by_notes(notes: Mailbox, timeout_s: float) -> None:
    """As `wait_for_others`, by notes alone: torch's barrier is passed by whoever sets its keys.

    Args:
        notes: sealed; not used by anybody else meanwhile.
        timeout_s: the longest to wait, s.
    """
    others = [node for node in range(notes.nodes) if node != notes.node]
    end_s = time.monotonic() + timeout_s
    try:
        while time.monotonic() < end_s:
            # Each time, as somebody may remove it.
            notes.put(f"done/{notes.node}", b"1")
            if notes.node and notes.get(_ALL_DONE) is not None:
                return
            if not notes.node and all(notes.get(f"done/{node}") is not None for node in others):
                notes.put(_ALL_DONE, b"1")
                return
            if any(notes.get(ended_key(node)) is not None for node in others):
                return
            time.sleep(_LOOK_S)
    except ExchangeBroken:
        return


def _look(notes: Mailbox, waiting: threading.Thread, has_failed: threading.Event) -> None:
    others = [ended_key(node) for node in range(notes.nodes) if node != notes.node]
    try:
        while waiting.is_alive():
            if any(notes.get(key) is not None for key in others):
                has_failed.set()
                return
            waiting.join(_LOOK_S)
    except ExchangeBroken:
        return
