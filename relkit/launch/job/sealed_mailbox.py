"""Notes in a store that anybody can write to: only those of this job's launchers count."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

from relkit.launch.job.exchange import ExchangeBroken, Mailbox, MemoryMailbox, StoreMailbox
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.net.operator_secret import derive

_NUMBER = struct.Struct("!Q")
_MAC_BYTES = hashlib.sha256().digest_size


class SealedMailbox:
    """A mailbox whose notes carry a proof that a launcher of this job has written them.

    A note that carries none, or that is older than one that was read under its name, reads as
    absent; so does one that was removed and put back. What cannot be prevented: that whoever
    reaches the store withholds notes, or reads them.

    Each name belongs to one launcher, which numbers what it writes.

    Args:
        inner: the mailbox in the store.
        key: of this job, rendezvous and purpose.
        log: gets one line, once, where a note is not the job's.
    """

    def __init__(self, inner: Mailbox, key: bytes, log: Log) -> None:
        self.node, self.nodes = inner.node, inner.nodes
        self._inner, self._key, self._log = inner, key, log
        self._sent = 0
        # By name, the number that a note must have to count.
        self._min_numbers: dict[str, int] = {}
        self._complained = False

    @property
    def is_stuck(self) -> bool:
        """See Mailbox."""
        return self._inner.is_stuck

    def put(self, key: str, data: bytes) -> None:
        """See Mailbox."""
        self._sent += 1
        body = _NUMBER.pack(self._sent) + data
        self._inner.put(key, self._mac(key, body) + body)

    def get(self, key: str) -> bytes | None:
        """See Mailbox."""
        note = self._inner.get(key)
        if not note:
            return None
        mac, body = note[:_MAC_BYTES], note[_MAC_BYTES:]
        if len(body) < _NUMBER.size or not hmac.compare_digest(mac, self._mac(key, body)):
            self._complain(key)
            return None
        (number,) = _NUMBER.unpack_from(body)
        if number < self._min_numbers.get(key, 0):
            self._complain(key)
            return None
        self._min_numbers[key] = number
        return body[_NUMBER.size :]

    def remove(self, key: str) -> None:
        """See Mailbox."""
        if key in self._min_numbers:
            self._min_numbers[key] += 1
        self._inner.remove(key)

    def _mac(self, key: str, body: bytes) -> bytes:
        name = key.encode()
        return hmac.new(self._key, _NUMBER.pack(len(name)) + name + body, hashlib.sha256).digest()

    def _complain(self, key: str) -> None:
        if not self._complained:
            self._complained = True
            line = (
                f"the note {key!r} in the rendezvous store is not of this job's launchers: it is"
                " ignored; somebody else can write to the store"
            )
            self._log(warning(line))


def store_mailbox(
    store: Any,  # noqa: ANN401  torch's
    node: int,
    nodes: int,
    purpose: str,
    key: bytes,
    log: Log,
) -> Mailbox:
    """A mailbox in the store of a rendezvous, with keys of its own; in memory where that fails.

    Args:
        store: None where there is none; node: number of this one; nodes: how many there are.
        purpose: the same on all nodes.
        key: that all launchers have and that is not in the store; b"" for none.
    """
    if nodes == 1 or store is None:
        return MemoryMailbox()
    try:
        prefix = f"{purpose}-round"  # each rendezvous has keys of its own
        inner = StoreMailbox(store, node, nodes, prefix)
    except ExchangeBroken as error:
        log(warning(f"{error}; this node judges only its own ranks"))
        return MemoryMailbox()
    return SealedMailbox(inner, derive(key, "mailbox", prefix.encode()), log) if key else inner
