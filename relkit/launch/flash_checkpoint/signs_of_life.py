"""Signs of life of a node that writes in a round, so that nobody waits for one that is dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from relkit.launch.job.exchange import ExchangeBroken, Mailbox

_END_S = 5.0


@contextmanager
def signs_of_life(mailbox: Mailbox, key: str, every_s: float) -> Iterator[None]:
    """Change a note again and again while something else is done, which does not use the mailbox.

    Args:
        mailbox: to the other nodes; key: of the note.
        every_s: how often, s.
    """
    done = threading.Event()

    def give() -> None:
        number = 0
        while not done.wait(every_s):
            number += 1
            try:
                mailbox.put(key, str(number).encode())
            except ExchangeBroken:
                return

    thread = threading.Thread(target=give, name="relkit-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_END_S)
