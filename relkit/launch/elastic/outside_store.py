"""Finds out whether the rendezvous store is outside of the job: then its end need not be the job's.

    here/<n>   node n: whether its launcher hosts the store
    store      node 0, once all have said so: where it is

Where a launcher hosts it, that it has gone means that a node is lost, and its ranks with it.
"""

from __future__ import annotations

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, MemoryMailbox

_IN_JOB, _OUTSIDE, _STORE = b"in the job", b"outside", "store"


class StorePlace:
    """What is known of it in one attempt. Nothing here waits.

    Args:
        notes: to the other nodes.
        holds_store: this launcher hosts it.
    """

    def __init__(self, notes: Mailbox, *, holds_store: bool) -> None:
        self._notes = notes
        self._missing = set(range(notes.nodes))
        self._is_outside: bool | None = None
        try:
            notes.put(f"here/{notes.node}", _IN_JOB if holds_store else _OUTSIDE)
        except ExchangeBroken:
            self._is_outside = False

    @classmethod
    def unknown(cls) -> StorePlace:
        """Before the first attempt."""
        return cls(MemoryMailbox(), holds_store=True)

    @classmethod
    def of(cls, attempt: Attempt) -> StorePlace:
        """Of an attempt that is about to start."""
        return cls(attempt.mailbox("store"), holds_store=attempt.holds_store)

    @property
    def is_outside(self) -> bool:
        """All nodes have said that they do not host it; to be asked again and again."""
        if self._is_outside is None:
            try:
                self._look()
            except ExchangeBroken:
                self._is_outside = False
        return bool(self._is_outside)

    def _look(self) -> None:
        if self._notes.node:
            where = self._notes.get(_STORE)
        else:
            where = self._gathered()
            if where is not None:
                self._notes.put(_STORE, where)
        if where is not None:
            self._is_outside = where == _OUTSIDE

    def _gathered(self) -> bytes | None:
        """None as long as not all have said it."""
        for node in sorted(self._missing):
            said = self._notes.get(f"here/{node}")
            if said is not None and said != _OUTSIDE:
                return _IN_JOB
            if said is not None:
                self._missing.discard(node)
        return None if self._missing else _OUTSIDE
