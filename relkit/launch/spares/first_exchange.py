"""What nodes tell each other in the store between their meeting and the start of the workers.

torch waits there for each of them, up to a minute, within the one connection to the store that its
heartbeats need as well. If one node is lost just then, all others look dead to whoever waits, and
end with an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

from relkit.launch.job.service import MeetAgain

# From one look at the store to the next: at first, and at most, s. Heartbeats go out in between.
_FIRST_S, _MAX_PAUSE_S = 0.01, 0.25
# How often it is seen whether all nodes are still there, s.
_NODES_S = 1.0
# Of keys that are looked for at once.
_BATCH = 512


class MeetingBroken(MeetAgain):
    """A node of a meeting was lost before the workers could start: the others meet again."""


class FirstExchange:
    """torch's store, as far as torch uses it there: whoever waits sees if a node is lost.

    Args:
        store: of the meeting.
        why_broken: why the meeting cannot stand, "" as long as it does.
        timeout_s: how long to wait for what other nodes have to say, s.
    """

    def __init__(
        self,
        store: Any,  # noqa: ANN401  torch's, with methods of its own
        why_broken: Callable[[], str],
        timeout_s: float,
    ) -> None:
        self.store = store
        self._why_broken, self._timeout_s = why_broken, timeout_s

    def set(self, key: str, value: Any) -> None:  # noqa: ANN401
        """As torch's."""
        self.store.set(key, value)

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """As torch's."""
        self.store.multi_set(keys, values)

    def get(self, key: str) -> bytes:
        """As torch's.

        Raises:
            MeetingBroken: nobody will say that any more.
        """
        self._wait([key])
        value: bytes = self.store.get(key)
        return value

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """As torch's.

        Raises:
            MeetingBroken: see get.
        """
        for begin in range(0, len(keys), _BATCH):
            self._wait(keys[begin : begin + _BATCH])
        values: list[bytes] = self.store.multi_get(keys)
        return values

    def _wait(self, keys: Sequence[str]) -> None:
        now_s = time.monotonic()
        end_s, look_s, pause_s = now_s + self._timeout_s, now_s + _NODES_S, _FIRST_S
        while not self.store.check(list(keys)):
            now_s = time.monotonic()
            if now_s > end_s:
                raise RendezvousTimeoutError(f"no node has set {keys[0]} or what belongs to it")
            if now_s > look_s:
                look_s = now_s + _NODES_S
                if why := self._why_broken():
                    raise MeetingBroken(why)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
