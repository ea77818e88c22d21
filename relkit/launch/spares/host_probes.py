"""Whether the hosts of silent launchers are still there: their kernels are asked.

A launcher that waits for a processor, or is stopped, gives no sign of life either. Its host's
kernel answers a TCP connection all the same, with a refusal where nobody listens; a host that is
cut off or lost does not. Unlike a heartbeat that got lost, which TCP sends again less and less
often, each question is new: a host that is back answers at once.
"""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack

# A host is asked twice, and has so long to answer each time, s: within a cluster that is a
# thousand times as long as it needs.
_TIMES, _ANSWER_S = 2, 0.45
# Asked at once: no more files than this are open.
_BATCH = 64
# What the host itself says: it accepts, or nobody listens there.
_ANSWERS = frozenset({0, errno.ECONNREFUSED, errno.ECONNRESET})
# What the network says of it. ENETUNREACH is not among them: this host has lost its own network.
_LOST = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT})

# As getaddrinfo returns it: family and address.
_Address = tuple[
    socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]


class HostProbes:
    """Asks hosts in the background; only one that has answered before can fall silent.

    Args:
        port: to connect to; nobody has to listen there. The port of the rendezvous store is one
            that hosts of a job let each other reach.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        # Host -> where it has answered; None while it has not.
        self._known: dict[str, _Address | None] = {}
        self._lost: frozenset[str] = frozenset()
        self._asking: threading.Thread | None = None

    def lost(self, hosts: Collection[str], silent: Collection[str]) -> frozenset[str]:
        """Those of the silent hosts that have answered before, and did not when last asked.

        It returns at once; what it starts to ask is known at one of the next calls.

        Args:
            hosts: names or addresses of all that may fall silent.
            silent: those of which nothing is heard now.
        """
        if self._asking is None or not self._asking.is_alive():
            new = [host for host in hosts if host not in self._known]
            asked = {host: at for host in silent if (at := self._known.get(host)) is not None}
            self._known |= dict.fromkeys(new)
            self._asking = None
            if new or asked:
                work = threading.Thread(target=self._ask, args=(new, asked), daemon=True)
                work.name = "relkit host probes"
                self._asking = work
                work.start()
        self._lost &= frozenset(silent)
        return self._lost

    def wait(self, timeout_s: float) -> None:
        """Until nobody is being asked, or time is up."""
        if self._asking is not None:
            self._asking.join(timeout_s)

    def _ask(self, new: Collection[str], asked: Mapping[str, _Address]) -> None:
        _, self._lost = ask(asked)
        named = {host: at for host in new if (at := _address_of(host, self._port))}
        answered, _ = ask(named)
        self._known |= {host: named[host] for host in answered}


def ask(hosts: Mapping[str, _Address]) -> tuple[frozenset[str], frozenset[str]]:
    """Ask the kernels of hosts, and again those that do not answer.

    Returns:
        who has answered, and who has not; one that cannot be asked is in neither.
    """
    answered, lost = set[str](), set[str]()
    names = list(hosts)
    for begin in range(0, len(names), _BATCH):
        waiting = set(names[begin : begin + _BATCH])
        for _ in range(_TIMES):
            said = _once({host: hosts[host] for host in waiting})
            answered |= {host for host, error in said.items() if error in _ANSWERS}
            waiting = {host for host, error in said.items() if error in _LOST}
        lost |= waiting
    return frozenset(answered), frozenset(lost)


def _once(hosts: Mapping[str, _Address]) -> dict[str, int]:
    """What comes of connecting to each of them: an error number, 0 for none."""
    end_s = time.monotonic() + _ANSWER_S
    errors = dict.fromkeys(hosts, errno.ETIMEDOUT)
    with ExitStack() as sockets:
        poller, waiting = select.poll(), dict[int, tuple[str, socket.socket]]()
        for host, (family, address) in hosts.items():
            try:
                connection = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM))
                connection.setblocking(False)
                errors[host] = connection.connect_ex(address)
            except OSError as error:
                errors[host] = error.errno or errno.EIO
                continue
            if errors[host] == errno.EINPROGRESS:
                errors[host] = errno.ETIMEDOUT
                waiting[connection.fileno()] = host, connection
                poller.register(connection, select.POLLOUT)
        while waiting and (left_s := end_s - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left_s * 1e3):
                poller.unregister(descriptor)
                host, connection = waiting.pop(descriptor)
                errors[host] = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errors


def _address_of(host: str, port: int) -> _Address | None:
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        return None
    return family, place
