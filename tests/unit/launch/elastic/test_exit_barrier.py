"""A node whose workers are done does not wait for one that has failed, nor through a signal."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from relkit.launch.elastic.exit_barrier import ended_key, wait_by_notes, wait_for_others
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from tests.waiting import eventually

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


def test_by_notes_nodes_wait_for_each_other() -> None:
    notes: dict[str, bytes] = {}
    host = threading.Thread(target=wait_by_notes, args=(MemoryMailbox(0, 3, notes), 60.0))
    others = [
        threading.Thread(target=wait_by_notes, args=(MemoryMailbox(node, 3, notes), 60.0))
        for node in (1, 2)
    ]
    for thread in (host, others[0]):
        thread.start()
    eventually(lambda: "done/0" in notes and "done/1" in notes, "no notes")
    assert host.is_alive()
    assert others[0].is_alive()
    others[1].start()
    for thread in (host, *others):
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("node", [0, 1])
def test_by_notes_nobody_waits_for_a_node_that_failed_or_a_store_that_went(node: int) -> None:
    began_s = time.monotonic()
    wait_by_notes(MemoryMailbox(node, 3, {ended_key(2): b"1"}), 60.0)
    wait_by_notes(BrokenNotes(node, 3), 60.0)
    wait_by_notes(MemoryMailbox(node, 3, {ended_key(node): b"1"}), 0.3)
    assert 0.3 <= time.monotonic() - began_s < 30


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
        # It is still inside torch, and the launcher ends: see process_exit.leave.
        inside = [thread.name for thread in threading.enumerate() if thread.daemon]
        assert "relkit-exit-barrier" in inside
    finally:
        never.set()
        signal.signal(signal.SIGUSR1, before)
