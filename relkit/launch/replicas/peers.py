"""Connections to the launchers on other hosts: who pushes copies here, and who fetches them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from relkit.errors import RelkitError
from relkit.flash_checkpoint.replicas.copy_folder import CopiesClosed, CopyFolder
from relkit.flash_checkpoint.replicas.copy_stream import ReadInto
from relkit.flash_checkpoint.slots.errors import BadSlot, NoRoom
from relkit.flash_checkpoint.slots.slot_format import Owner, SlotHeader
from relkit.launch.job.settings import Log
from relkit.launch.replicas.wire import Answer, Asked, Broken, Link, RateLimit, slot_bytes
from relkit.log_lines import warning
from relkit.net.dial import dial
from relkit.net.handshake import Label
from relkit.net.listener import Listener

PUSH, FETCH = 1, 2
DIAL_S = 10.0
# A listener lives as long as its attempt, which closes it.
_LIFETIME_S = 10 * 365 * 86400.0
_TAKE_S = 1.0
_ROUND = 0


@dataclass(frozen=True, slots=True)
class Peer:
    """Another launcher.

    Args:
        node: its number; name: for people; host: what tells hosts apart.
        address, port: of its listener; ranks: that it runs.
    """

    node: int
    name: str
    host: str
    address: str
    port: int
    ranks: tuple[int, ...]


class Doorway:
    """This launcher's listener, and the threads that serve who comes in.

    Args:
        address: of this node on the way to the others; secret: of the job's replicas.
        copies: of this node; world_size: ranks of the job; log: writes one line to the terminal.

    Raises:
        OSError: the address is not this host's.
    """

    def __init__(
        self, address: str, secret: bytes, copies: CopyFolder, world_size: int, log: Log
    ) -> None:
        self.stop = threading.Event()
        self._copies, self._world_size, self._log = copies, world_size, log
        self._listener = Listener(address, _ROUND, secret, lifetime_s=_LIFETIME_S)
        self.address, self.port = self._listener.address, self._listener.port
        self._threads: list[threading.Thread] = []
        self._said: set[str] = set()

    def take_copies_of(self, peer: Peer, spare_bytes: Callable[[], int]) -> None:
        """Take in what a launcher pushes, in a thread.

        Args:
            spare_bytes: so much of shared memory is left to the training.
        """
        self._begin(f"relkit-replica-{peer.node}", self._take, peer, spare_bytes)

    def let_fetch(self, node: int, ranks: Collection[int]) -> None:
        """Let a launcher fetch copies of its ranks, in a thread."""
        self._begin(f"relkit-fetch-{node}", self._give, node, ranks)

    def close(self) -> None:
        """End all of it."""
        self.stop.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(2 * _TAKE_S)

    def _begin(self, name: str, function: object, *arguments: object) -> None:
        assert callable(function)
        thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _next(self, phase: int, node: int) -> Link | None:
        """The next connection of a peer; None when all is over."""
        while not self.stop.is_set():
            with suppress(TimeoutError):
                return Link(self._listener.take(Label(phase, node), _TAKE_S), self.stop)
        return None

    def _take(self, peer: Peer, spare_bytes: Callable[[], int]) -> None:
        while (link := self._next(PUSH, peer.node)) is not None:
            try:
                while link.wait_readable():
                    self._take_one(link, peer, spare_bytes)
            except (Broken, CopiesClosed):
                pass  # the sender says so, and comes again
            except (BadSlot, OSError) as error:
                self._say(f"what {peer.name} sent is refused: {error}")
            finally:
                link.close()

    def _take_one(self, link: Link, peer: Peer, spare_bytes: Callable[[], int]) -> None:
        link.begin()
        try:
            asked = link.read_asked(peer.ranks)
            header = link.read_header(_owner(asked, self._world_size))
            begun = False

            def read_into(view: memoryview, offset: int) -> None:
                nonlocal begun
                if not begun:  # there is room
                    begun = True
                    link.begin(slot_bytes(header))
                    link.answer(Answer.GO)
                link.read_into(view, offset)

            self._copies.add(
                asked.rank, asked.round_id, header, read_into, keep=asked.keep,
                spare_bytes=spare_bytes(),
            )  # fmt: skip
        except NoRoom as error:
            link.answer(Answer.NO_ROOM, str(error))
        except BadSlot as error:
            with suppress(Broken):
                link.answer(Answer.REFUSED, str(error))
            raise
        else:
            link.begin()
            link.answer(Answer.WHOLE)

    def _give(self, node: int, ranks: Collection[int]) -> None:
        while (link := self._next(FETCH, node)) is not None:
            try:
                while link.wait_readable():
                    self._give_one(link, ranks)
            except (Broken, BadSlot, OSError):
                pass  # who fetches says so
            finally:
                link.close()

    def _give_one(self, link: Link, ranks: Collection[int]) -> None:
        link.begin()
        try:
            asked = link.read_asked(ranks)
            copy = self._copies.of(asked.rank, asked.round_id)
        except BadSlot as error:
            link.answer(Answer.REFUSED, str(error))
            raise
        link.begin(slot_bytes(copy.header))
        link.answer(Answer.GO)
        link.send_header(copy.header, _owner(asked, self._world_size))
        link.send_copy(copy, RateLimit(0.0))

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._log(warning(f"flash checkpoint: {line}"))


def push(
    link: Link, copies: CopyFolder, asked: Asked, world_size: int, rate_limit: RateLimit
) -> tuple[Answer, str]:
    """Send a copy of this node to another one.

    Returns:
        WHOLE, NO_ROOM or REFUSED, with a sentence.

    Raises:
        Broken: the connection has ended.
        BadSlot: the copy is not there.
    """
    copy = copies.of(asked.rank, asked.round_id)
    link.begin()
    link.ask(asked)
    link.send_header(copy.header, _owner(asked, world_size))
    kind, words = link.read_answer()
    if kind is not Answer.GO:
        return kind, words
    link.begin(slot_bytes(copy.header))
    try:
        link.send_copy(copy, rate_limit)
    except OSError as error:
        raise Broken(f"the copy is gone: {error.strerror}") from error
    return link.read_answer()


def fetch(link: Link, asked: Asked, world_size: int) -> tuple[SlotHeader, ReadInto]:
    """Ask another node for a copy.

    Returns:
        the header, and what reads the rest.

    Raises:
        BadSlot: it has none, or one that is not of this rank and round.
        Broken: the connection has ended.
    """
    link.begin()
    link.ask(asked)
    kind, words = link.read_answer()
    if kind is not Answer.GO:
        raise Broken(words or "it has none")
    header = link.read_header(_owner(asked, world_size))
    link.begin(slot_bytes(header))
    return header, link.read_into


def connect(
    peer: Peer,
    phase: int,
    own_node: int,
    secret: bytes,
    stop: threading.Event,
    end_s: float = math.inf,
) -> Link:
    """A connection to another launcher.

    Args:
        stop, end_s: of the Link.

    Raises:
        Broken: it cannot be reached, or does not know the secret.
    """
    label = Label(phase, own_node)
    dial_s = min(DIAL_S, end_s - time.monotonic())
    if dial_s <= 0:
        raise Broken(f"there is no time left to connect to {peer.name} ({peer.address})")
    try:
        connection = dial(peer.address, peer.port, _ROUND, secret, label, dial_s)
        return Link(connection, stop, end_s)
    except (OSError, RelkitError) as error:
        raise Broken(f"{peer.name} ({peer.address}) cannot be reached: {error}") from error


def ranks_of(peers: Mapping[int, Peer]) -> dict[int, int]:
    """rank -> the node that runs it."""
    return {rank: peer.node for peer in peers.values() for rank in peer.ranks}


def _owner(asked: Asked, world_size: int) -> Owner:
    return Owner(asked.rank, world_size, bytes.fromhex(asked.round_id))
