"""How launchers that have met learn each other's addresses and keys, from the rendezvous store.

    route/<n>   heir n -> node 0: its address on the way to the store's host
    key         node 0 -> all: an address that is not the loopback, if there is one; the key
    at/<n>      node n, where others may connect to it: address and port
    heirs       node 0 -> all: those of the heirs

With an operator's secret the key is derived from it, and not in the store.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from relkit.hosts import numeric_address
from relkit.launch.control.tree import FAN_IN, ancestors, children, heirs
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, Mailbox
from relkit.net.interface import NoRoute, resolve
from relkit.net.operator_secret import derive
from relkit.text.foreign_json import parse_object

# How long other launchers may take to come.
JOIN_S = 60.0
# How long node 0 waits for the other heirs, twice; it goes on with those that have come.
_FIRST_S = 20.0
_POLL_S = 0.05
# What all launchers together ask of the store at most.
_MAX_READS_PER_S = 2_000
_KEY_BYTES = 32
_LOOPBACK = "127.0.0.1"

Endpoint = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Joined:
    """What a launcher knows of the others.

    Args:
        key: of the links of this rendezvous, 32 bytes.
        endpoints: where this node's possible parents listen.
        address: this node's, on the way to the others; "" where it has none.
    """

    key: bytes = field(repr=False)
    endpoints: dict[int, Endpoint]
    address: str = ""


def join(
    attempt: Attempt,
    mailbox: Mailbox,
    listen: Callable[[str, bytes], int],
    is_over: Callable[[], bool],
    fan_in: int = FAN_IN,
) -> Joined:
    """Meet the others; all launchers of a rendezvous call this.

    Args:
        attempt: that is about to start; mailbox: in the store, with a prefix of its own.
        listen: at an address, with the key of the links: gives the port.
        is_over: nobody waits for this any more.
        fan_in: of the tree.

    Raises:
        ExchangeBroken: the store does not answer, or node 0 did not come.
        CannotListen: this node has no address that it could listen at.
    """
    node, nodes = mailbox.node, mailbox.nodes
    first = heirs(nodes, fan_in)
    route = _own_address(attempt, "")
    waiting = _Waiting(mailbox, is_over)
    if node in first:
        mailbox.put(f"route/{node}", _text({"address": route}))
    if node == 0:
        routes = waiting.all([f"route/{each}" for each in first])
        addresses = [_address(plain) for plain in routes.values()]
        peer = next((each for each in addresses if each and not _is_loopback(each)), "")
        shown = "" if attempt.key else secrets.token_hex(_KEY_BYTES)
        mailbox.put("key", _text({"peer": peer, "key": shown}))
    note = waiting.until("key")
    peer = numeric_address(str(note.get("peer", "")))
    # A host's own name often is a name of its loopback, which is of no use to the others.
    if _is_loopback(route) and peer:
        route = _own_address(attempt, peer)
    key = _key(attempt.key, note)
    if node in first or children(node, nodes, fan_in):
        port = 0
        try:
            port = listen(route, key)
        finally:
            # Also where that failed: the others would wait for it.
            mailbox.put(f"at/{node}", _text({"address": route, "port": port}))
    if node == 0:
        known = waiting.all([f"at/{each}" for each in first])
        mailbox.put("heirs", _text({name.partition("/")[2]: at for name, at in known.items()}))
    endpoints = {
        int(name): _endpoint(plain)
        for name, plain in waiting.until("heirs").items()
        if name.isdecimal() and isinstance(plain, dict)
    }
    for above in ancestors(node, fan_in):
        if above not in endpoints:
            endpoints[above] = _endpoint(waiting.until(f"at/{above}"))
    return Joined(key, {each: at for each, at in endpoints.items() if at is not None}, route)


def _key(session: bytes, note: dict[str, object]) -> bytes:
    if session:
        return derive(session, "links")
    try:
        key = bytes.fromhex(str(note.get("key", "")))
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ExchangeBroken("the key of the links in the rendezvous store is none")
    return hashlib.sha256(key).digest()


class _Waiting:
    """Reads notes that others are about to leave."""

    def __init__(self, mailbox: Mailbox, is_over: Callable[[], bool]) -> None:
        self._mailbox, self._is_over = mailbox, is_over
        self._end_s = time.monotonic() + JOIN_S
        self._poll_s = max(_POLL_S, mailbox.nodes / _MAX_READS_PER_S)

    def all(self, keys: Sequence[str]) -> dict[str, dict[str, object]]:
        """Those of these notes that have come in time."""
        end_s = time.monotonic() + _FIRST_S
        read: dict[str, dict[str, object]] = {}
        while len(read) < len(keys) and time.monotonic() < end_s and not self._is_over():
            for key in keys:
                note = None if key in read else self._mailbox.get(key)
                if note is not None:
                    read[key] = _plain(key, note)
            time.sleep(_POLL_S)
        return read

    def until(self, key: str) -> dict[str, object]:
        """A note, once it is there."""
        while (note := self._mailbox.get(key)) is None:
            if time.monotonic() > self._end_s:
                raise ExchangeBroken(f"no note {key!r} from another node for {JOIN_S:g} s")
            if self._is_over():
                raise ExchangeBroken("the attempt is over")
            time.sleep(self._poll_s)
        return _plain(key, note)


def _plain(key: str, note: bytes) -> dict[str, object]:
    try:
        return parse_object(note)
    except ValueError as error:
        raise ExchangeBroken(f"the note {key!r} in the store cannot be read") from error


def _text(plain: Mapping[str, object]) -> bytes:
    return json.dumps(plain).encode()


def _address(plain: dict[str, object]) -> str:
    return numeric_address(str(plain.get("address", "")))


def _endpoint(plain: dict[str, object]) -> Endpoint | None:
    """None for a node that cannot be connected to."""
    address, port = _address(plain), plain.get("port")
    is_one = bool(address) and isinstance(port, int) and 0 < port < 1 << 16
    return (address, int(str(port))) if is_one else None


def _own_address(attempt: Attempt, peer: str) -> str:
    """ "" where there is none."""
    address = attempt.address(peer)
    if not address or numeric_address(address):
        return address
    try:
        return resolve(address)
    except NoRoute:
        return ""


def _is_loopback(address: str) -> bool:
    return address.startswith(_LOOPBACK.partition(".")[0] + ".") or address == "::1"
