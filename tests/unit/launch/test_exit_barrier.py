"""A node whose workers are done does not wait for one that has failed, nor through a signal."""

from __future__ import annotations

import signal
import threading

import pytest

from relkit import process_exit
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from relkit.launch.job.exit_barrier import ended_key, wait_for_others

pytestmark = pytest.mark.timeout(60)


def two_nodes() -> MemoryMailbox:
    """What two nodes share."""
    return MemoryMailbox(0, 2)


class BrokenNotes(MemoryMailbox):
    """A store that has gone."""

    def get(self, key: str) -> bytes | None:
        raise ExchangeBroken("the rendezvous store failed")


def waits_until_all_have_come(notes: MemoryMailbox) -> bool:
    """Whether it returns only after the barrier has, to which the others come late."""
    others_come = threading.Event()
    done = []

    def barrier() -> None:
        others_come.wait(30)
        done.append(True)

    timer = threading.Timer(0.5, others_come.set)
    timer.start()
    wait_for_others(barrier, notes)
    has_waited = done == [True]
    timer.join()
    return has_waited


@pytest.mark.parametrize("notes", [two_nodes(), BrokenNotes(0, 2)])
def test_it_waits_for_the_barrier(notes: MemoryMailbox) -> None:
    assert waits_until_all_have_come(notes)


def test_a_node_that_has_failed_is_not_waited_for() -> None:
    notes, never = two_nodes(), threading.Event()
    notes.put(ended_key(1), b"1")

    def barrier() -> None:
        never.wait()

    try:
        wait_for_others(barrier, notes)
    finally:
        never.set()


def test_a_nodes_own_failure_does_not_end_its_wait() -> None:
    notes = two_nodes()
    notes.put(ended_key(0), b"1")
    assert waits_until_all_have_come(notes)


def test_a_signal_ends_it() -> None:
    class Interrupted(Exception):
        pass

    def handler(_number: int, _frame: object) -> None:
        raise Interrupted

    never, has_begun = threading.Event(), threading.Event()

    def barrier() -> None:
        has_begun.set()
        never.wait()

    def interrupt() -> None:
        has_begun.wait()
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(Interrupted):
            wait_for_others(barrier, two_nodes())
        # It is still inside torch, and the launcher ends.
        assert "relkit-exit-barrier" in [thread.name for thread in process_exit._callers]
    finally:
        never.set()
        signal.signal(signal.SIGUSR1, before)
