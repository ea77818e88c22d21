"""How launchers pass notes: a mailbox; and one in the rendezvous store, where they meet."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from relkit.errors import RelkitError
from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

# torch's TCP store refuses values above 8 MiB; small parts also keep it free for the job.
PART_BYTES = 1 << 20
# A message of one node at most: several hundred dumps.
MESSAGE_BYTES = 64 << 20
STORE_TIMEOUT_S = 5.0
# To connect: a host that starts a large job has thousands of connections to accept.
CONNECT_TIMEOUT_S = 20.0
# How often a thread that is waited for is looked at.
_LOOK_S = 0.1
# How often notes that are waited for are looked for.
_POLL_S = 0.05
# Begins the keys of what nodes share, where a mailbox keeps that as notes.
SHARED = "node/"
_Answer = TypeVar("_Answer")


class ExchangeBroken(RelkitError):
    """The other launchers cannot be reached; each node judges its own ranks from here on."""

    next_step = "The job is not affected. Check the ways between the hosts of the launchers."


class Mailbox(Protocol):
    """Notes by key, kept until the job ends. No call ever waits for a note to appear."""

    node: int
    nodes: int

    @property
    def is_stuck(self) -> bool:
        """A call has not been answered in time, and may not return for minutes."""

    def put(self, key: str, data: bytes) -> None:
        """Leave a note, replacing an older one under the same key."""

    def get(self, key: str) -> bytes | None:
        """The note under a key, None where there is none (yet)."""

    def remove(self, key: str) -> None:
        """Forget a note that has been read; it is seen again only where it is put again."""


@dataclass(frozen=True, slots=True)
class LauncherAddress:
    """Where this launcher may open further listeners for the others, and how they know each other.

    Args:
        address: this host's, that the others reach it by; numeric.
        key: that all launchers of these links have, and nobody else; to derive others from.
    """

    address: str
    key: bytes = field(repr=False)


class LedMailbox(Mailbox, Protocol):
    """A mailbox of launchers one of which leads: all others read what it has left, and it theirs.

    Notes belong to the leader that they were meant for: another one does not see them.
    """

    @property
    def leader(self) -> int:
        """The node that leads, as far as this one knows."""

    @property
    def silent(self) -> frozenset[int]:
        """Nodes that are known not to answer."""

    @property
    def launcher_address(self) -> LauncherAddress | None:
        """For further connections between launchers; None where there are none (yet)."""

    def first(self, prefix: str) -> bytes | None:
        """The note of the lowest other node that has left one under PREFIXnode."""

    def share(self, data: bytes) -> None:
        """Tell the leader what replaces whatever this node has shared before.

        Args:
            data: can stand behind that of other nodes, and be told apart from it.
        """

    def take_shared(self) -> list[bytes]:
        """What the others have shared of late; in each, that of one node or of several."""


class MemoryMailbox:
    """Notes within one process: the single-node job, and tests.

    Args:
        node: this node's number; nodes: how many there are.
        notes: shared between the nodes of a test.
    """

    is_stuck = False
    leader = 0
    silent: frozenset[int] = frozenset()
    launcher_address: LauncherAddress | None = None

    def __init__(
        self, node: int = 0, nodes: int = 1, notes: dict[str, bytes] | None = None
    ) -> None:
        self.node, self.nodes = node, nodes
        self._notes = {} if notes is None else notes

    def put(self, key: str, data: bytes) -> None:
        """See Mailbox."""
        self._notes[key] = data

    def get(self, key: str) -> bytes | None:
        """See Mailbox."""
        return self._notes.get(key)

    def remove(self, key: str) -> None:
        """See Mailbox."""
        self._notes.pop(key, None)

    def first(self, prefix: str) -> bytes | None:
        """See LedMailbox."""
        others = (self.get(f"{prefix}{node}") for node in range(self.nodes) if node != self.node)
        return next((data for data in others if data is not None), None)

    def share(self, data: bytes) -> None:
        """See LedMailbox."""
        self.put(f"{SHARED}{self.node}", data)

    def take_shared(self) -> list[bytes]:
        """See LedMailbox; also what was taken before."""
        others = (self.get(f"{SHARED}{node}") for node in range(self.nodes) if node != self.node)
        return [data for data in others if data is not None]


class StoreMailbox:
    """Notes in the job's rendezvous store, over a connection of our own where it can be had.

    The store authenticates nobody: anybody may have written what is read here (see SealedMailbox).

    Args:
        store: the store that torch's rendezvous returned.
        prefix: keeps attempts of the job apart where they share a store.

    Raises:
        ExchangeBroken: in any call, when the store does not answer in time.
    """

    def __init__(self, store: Store, node: int, nodes: int, prefix: str) -> None:
        self.node, self.nodes = node, nodes
        self._prefix = f"relkit/{prefix}/"
        # Keep a reference: this may be the store's server, which must outlive the last note.
        self._origin = store
        self._calls = BoundedCalls("relkit-mailbox")
        try:
            self._store = own_connection(store)
            if self._store is not store:
                self._store.set_timeout(timedelta(seconds=STORE_TIMEOUT_S))
        except (RuntimeError, OSError) as error:
            raise ExchangeBroken(f"cannot reach the rendezvous store: {_line(error)}") from error

    @property
    def is_stuck(self) -> bool:
        """See Mailbox: the host of the store may be cut off."""
        return self._calls.stuck_s() > STORE_TIMEOUT_S

    def put(self, key: str, data: bytes) -> None:
        """See Mailbox. Large notes go in parts; the key itself is written last."""
        if len(data) > MESSAGE_BYTES:
            raise ExchangeBroken(f"a note of {len(data)} bytes is too large for the store")
        parts = [data[i : i + PART_BYTES] for i in range(0, len(data), PART_BYTES)] or [b""]
        try:
            for number, part in enumerate(parts[1:], 1):
                self._ask(self._store.set, f"{self._prefix}{key}/{number}", _raw(part))
            head = f"{len(parts)} {len(data)} {zlib.crc32(data)}\n".encode()
            self._ask(self._store.set, self._prefix + key, _raw(head + parts[0]))
        except (RuntimeError, OSError) as error:
            raise ExchangeBroken(f"the rendezvous store failed: {_line(error)}") from error

    def get(self, key: str) -> bytes | None:
        """See Mailbox. A note that is being replaced reads as absent."""
        try:
            # check() first: a bare get() would wait for the key.
            if not self._ask(self._store.check, [self._prefix + key]):
                return None
            head, _, first = self._ask(self._store.get, self._prefix + key).partition(b"\n")
            count, size, crc = (int(field) for field in head.split())
            if not 0 < count <= MESSAGE_BYTES // PART_BYTES + 1:
                return None
            names = [f"{self._prefix}{key}/{number}" for number in range(1, count)]
            if names and not self._ask(self._store.check, names):
                return None
            data = first + b"".join(self._ask(self._store.get, name) for name in names)
        except ValueError:
            return None
        except (RuntimeError, OSError) as error:
            raise ExchangeBroken(f"the rendezvous store failed: {_line(error)}") from error
        return data if len(data) == size and zlib.crc32(data) == crc else None

    def remove(self, key: str) -> None:
        """See Mailbox. In a store that cannot delete, an empty note stays."""
        try:
            self._ask(self._store.delete_key, self._prefix + key)
        except (RuntimeError, OSError):
            self.put(key, b"")

    def _ask(self, call: Callable[..., _Answer], *arguments: object) -> _Answer:
        # torch (seen in 2.13) applies no timeout to some calls: they return when the kernel gives
        # up on a host that is cut off.
        try:
            return self._calls.call(call, *arguments, timeout_s=STORE_TIMEOUT_S)
        except NoAnswer:
            raise TimeoutError(f"it has not answered for {STORE_TIMEOUT_S:g} s") from None


def own_connection(store: Store) -> Store:
    """The same store over another connection: a call that waits in a store holds its connection.

    Args:
        store: torch's; one that cannot be cloned, as in an older torch, is returned itself.

    Raises:
        RuntimeError, OSError: its host cannot be reached.
    """
    clone: Callable[[], Store] | None = getattr(store, "clone", None)
    if clone is None:
        return store
    try:
        return BoundedCalls("relkit-connect").call(clone, timeout_s=CONNECT_TIMEOUT_S)
    except NoAnswer:
        raise TimeoutError(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None


def wait_for_thread(
    thread: threading.Thread,
    mailbox: Mailbox | None,
    timeout_s: float,
    is_needed: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for a thread's end, but not while it waits for a store that does not answer.

    Args:
        thread: has begun; mailbox: what it passes notes by, None where it has not come to that.
        timeout_s: the longest to wait, s.
        is_needed: the thread is at work on something that must be done, with or without the store.
    """
    end_s = time.monotonic() + timeout_s
    while thread.is_alive() and time.monotonic() < end_s:
        if mailbox is not None and mailbox.is_stuck and not is_needed():
            return
        thread.join(_LOOK_S)


def wait_for_notes(mailbox: Mailbox, keys: Sequence[str], timeout_s: float) -> bool:
    """Wait until all these notes are there; False where time ran out or the store failed."""
    end_s = time.monotonic() + timeout_s
    missing = list(keys)
    try:
        while missing := [key for key in missing if mailbox.get(key) is None]:
            if time.monotonic() >= end_s:
                return False
            time.sleep(_POLL_S)
    except ExchangeBroken:
        return False
    return True


def _raw(data: bytes) -> str:
    # The stubs of torch ask for str; the binding takes bytes, and only bytes are kept verbatim.
    return data  # type: ignore[return-value]


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
