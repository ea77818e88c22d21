"""Signs of life of nodes that write in a round, so that nobody waits for one that is dead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from relkit.launch.job.exchange import ExchangeBroken, Mailbox

# How often a node that writes says so, s.
EVERY_S = 2.0
# After so long without one a node is given up, s: hosts that write are busy, and stores slow.
SILENT_S = 40.0
_END_S = 5.0


@contextmanager
def signs_of_life(mailbox: Mailbox, key: str, every_s: float = EVERY_S) -> Iterator[None]:
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


class Listener:
    """Which nodes have given no sign of life for too long.

    Args:
        mailbox: to the other nodes; keys: by node, the note that it changes.
        silent_s: for how long is too long, s.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        keys: Mapping[int, str],
        silent_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mailbox, self._keys, self._silent_s, self._clock = mailbox, keys, silent_s, clock
        began_s = clock()
        # By node, the newest note and when it came.
        self._newest = dict.fromkeys(keys, (b"", began_s))

    def silent(self) -> list[int]:
        """Those nodes; to be asked again and again.

        Raises:
            ExchangeBroken: the store does not answer.
        """
        now_s = self._clock()
        for node, key in self._keys.items():
            note = self._mailbox.get(key) or b""
            if note != self._newest[node][0]:
                self._newest[node] = note, now_s
        return [n for n, (_, at_s) in self._newest.items() if now_s - at_s >= self._silent_s]
