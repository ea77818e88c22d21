"""How a node whose workers are done waits for the other nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
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
# How long the notes of other nodes, which have been there for long, may take to come here, s.
_COME_S = 5.0


def ended_key(node: int) -> str:
    """The name of the note that a node leaves when the job has failed there."""
    return f"ended/{node}"


def begin(notes: Mailbox) -> None:
    """An attempt begins: let the other nodes know that notes of this one come through."""
    with suppress(ExchangeBroken):
        notes.put(_linked_key(notes.node), b"1")
        # From now on theirs come by themselves: who has failed may soon be gone.
        for node in range(notes.nodes):
            notes.get(_linked_key(node))
            notes.get(ended_key(node))


def reaches_all(notes: Mailbox) -> bool:
    """Notes of all other nodes come through."""
    others = [_linked_key(node) for node in range(notes.nodes) if node != notes.node]
    return bool(others) and wait_for_notes(notes, others, _COME_S)


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
            # Node 0 as well: by its links the others learn of it.
            if notes.nodes > 1 and (not notes.node or is_host()):
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
    with suppress(ExchangeBroken):
        notes.put(_left_key(notes.node), b"1")
    # Node 0 stays as well: notes of the others go by its links.
    if is_host or not notes.node:
        wait_for_notes(notes, others, _STAY_S)


def _linked_key(node: int) -> str:
    return f"linked/{node}"


def _left_key(node: int) -> str:
    return f"left/{node}"


def wait_for_others(barrier: Callable[[], None], notes: Mailbox) -> None:
    """Run torch's exit barrier to its end, or until another node is known to have failed.

    torch waits for minutes inside its store's client, for nodes that will never come, and no
    signal is handled meanwhile. So it waits in a thread of its own, and signals are handled here.

    Args:
        barrier: torch's.
        notes: where nodes say that they have failed, or are done; not used by anybody else
            meanwhile.
    """
    with suppress(ExchangeBroken):
        notes.put(_done_key(notes.node), b"1")
    is_over = threading.Event()
    waiting = threading.Thread(target=barrier, name="relkit-exit-barrier", daemon=True)
    looking = threading.Thread(
        target=_look, args=(notes, waiting, is_over), name="relkit-exit-look", daemon=True
    )
    waiting.start()
    looking.start()
    while waiting.is_alive() and not is_over.is_set():
        waiting.join(_LOOK_S)


def wait_by_notes(notes: Mailbox, timeout_s: float) -> None:
    """As `wait_for_others`, by notes alone: no store has to carry them, nor is believed.

    Args:
        notes: over links; not used by anybody else meanwhile.
        timeout_s: the longest to wait, s.
    """
    others = [node for node in range(notes.nodes) if node != notes.node]
    end_s = time.monotonic() + timeout_s
    try:
        # Looked for first: who has the others' notes may leave as soon as it has this one's.
        is_over = _is_over(notes, others)
        notes.put(_done_key(notes.node), b"1")
        while not is_over and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
            is_over = _is_over(notes, others)
    except ExchangeBroken:
        return


def _look(notes: Mailbox, waiting: threading.Thread, is_over: threading.Event) -> None:
    others = [node for node in range(notes.nodes) if node != notes.node]
    try:
        while others and waiting.is_alive():
            if _is_over(notes, others):
                is_over.set()
                return
            waiting.join(_LOOK_S)
    except ExchangeBroken:
        return


def _is_over(notes: Mailbox, others: Sequence[int]) -> bool:
    """One of the others has failed, or all are done."""
    ended = [notes.get(ended_key(node)) is not None for node in others]
    done = [notes.get(_done_key(node)) is not None for node in others]
    return any(ended) or all(done)


def _done_key(node: int) -> str:
    return f"done/{node}"
