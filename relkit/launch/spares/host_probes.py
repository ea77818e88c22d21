"""For how long hosts have not answered: their kernels are asked.

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
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress

from relkit.net.interface import UnknownHost, resolve

# How long a host has to answer, s: within a cluster that is some hundred times what it needs. TCP
# would ask again after a second only.
_ANSWER_S = 0.25
# After a question that all have answered, s.
_PAUSE_S = 0.25
# Nobody is asked any more once nobody has wanted to know for this long, s.
_AWAY_S = 3.0
# Asked at once: no more files than this are open.
_BATCH = 64
# What the host itself says: it accepts, or nobody listens there.
_ANSWERS = frozenset({0, errno.ECONNREFUSED, errno.ECONNRESET})
# What the network says of it. ENETUNREACH is not among them: this host has lost its own network.
_LOST = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT})


class HostProbes:
    """Asks hosts in the background; only one that has answered before can fall silent.

    They are asked twice a second, and four times while one of them does not answer.

    Args:
        port: to connect to; nobody has to listen there. The port of the rendezvous store is one
            that hosts of a job let each other reach.
        clock: monotonic seconds.
    """

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._port, self._clock = port, clock
        self._lock = threading.Lock()
        # Host -> the address at which it has answered; None while it has not.
        self._known: dict[str, str | None] = {}
        self._new: set[str] = set()
        self._asked: dict[str, str] = {}
        # Host -> of the questions in a row that it did not answer: until when the first was put at
        # the latest, and from when on the last was.
        self._unanswered: dict[str, tuple[float, float]] = {}
        self._looked_s = 0.0
        self._asking: threading.Thread | None = None

    def unanswered_s(self, hosts: Collection[str], asked: Collection[str]) -> dict[str, float]:
        """For how long those of these hosts that have answered before have not answered, s.

        It returns at once; hosts are asked from now on, until a later call leaves them out.

        Args:
            hosts: names or addresses of all that may be asked; it is seen whether they answer.
            asked: those that are asked now.
        """
        with self._lock:
            self._looked_s = self._clock()
            self._new |= {host for host in hosts if host not in self._known}
            self._known |= dict.fromkeys(self._new)
            self._asked = {h: at for h in asked if (at := self._known.get(h)) is not None}
            self._unanswered = {h: at for h, at in self._unanswered.items() if h in self._asked}
            if self._asking is None and (self._new or self._asked):
                name = "relkit host probes"
                self._asking = threading.Thread(target=self._ask, name=name, daemon=True)
                self._asking.start()
            unanswered = self._unanswered.items()
            return {host: max(0.0, last_s - first_s) for host, (first_s, last_s) in unanswered}

    def _ask(self) -> None:
        while True:
            with self._lock:
                begun_s, new, asked = self._clock(), self._new, dict(self._asked)
                self._new = set()
                if not (new or asked) or begun_s - self._looked_s > _AWAY_S:
                    self._asking = None
                    # A host may answer while it is not asked.
                    self._unanswered = {}
                    return
            all_answer = self._ask_known(asked, begun_s)
            if new:
                named = _addresses(new)
                answered, _ = ask(named, self._port)
                with self._lock:
                    self._known |= {host: named[host] for host in answered}
            elif all_answer:
                time.sleep(_PAUSE_S)

    def _ask_known(self, asked: Mapping[str, str], begun_s: float) -> bool:
        """Whether they all answer."""
        _, lost = ask(asked, self._port)
        put_s = self._clock() - _ANSWER_S
        with self._lock:
            for host in asked.keys() & self._asked.keys():
                first_s, _ = self._unanswered.get(host, (put_s, begun_s))
                self._unanswered[host] = (first_s, begun_s)
                if host not in lost:
                    del self._unanswered[host]
            return not self._unanswered


def ask(hosts: Mapping[str, str], port: int) -> tuple[frozenset[str], frozenset[str]]:
    """Ask the kernels of hosts, all of which have the same time to answer.

    Args:
        hosts: name -> numeric address; port: to connect to.

    Returns:
        who has answered, and who has not; one that cannot be asked is in neither.
    """
    answered, lost = set[str](), set[str]()
    names = list(hosts)
    for begin in range(0, len(names), _BATCH):
        said = _once({host: hosts[host] for host in names[begin : begin + _BATCH]}, port)
        answered |= {host for host, error in said.items() if error in _ANSWERS}
        lost |= {host for host, error in said.items() if error in _LOST}
    return frozenset(answered), frozenset(lost)


def _once(hosts: Mapping[str, str], port: int) -> dict[str, int]:
    """What comes of connecting to each of them: an error number, 0 for none."""
    errors = dict.fromkeys(hosts, errno.ETIMEDOUT)
    with ExitStack() as sockets:
        poller, waiting = select.poll(), dict[int, tuple[str, socket.socket]]()
        for host, address in hosts.items():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                connection = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM))
                connection.setblocking(False)
                errors[host] = connection.connect_ex((address, port))
            except OSError as error:
                errors[host] = error.errno or errno.EIO
                continue
            if errors[host] == errno.EINPROGRESS:
                errors[host] = errno.ETIMEDOUT
                waiting[connection.fileno()] = host, connection
                poller.register(connection, select.POLLOUT)
        # However long it took to ask, all have their time to answer.
        end_s = time.monotonic() + _ANSWER_S
        while waiting:
            # Answers that are there are taken, however late this thread is.
            ready = poller.poll(max(0.0, end_s - time.monotonic()) * 1e3)
            for descriptor, _ in ready:
                poller.unregister(descriptor)
                host, connection = waiting.pop(descriptor)
                errors[host] = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not ready:
                break
    # Those that answer at once are not asked all the time either.
    time.sleep(max(0.0, end_s - time.monotonic()))
    return errors


def _addresses(hosts: Collection[str]) -> dict[str, str]:
    """Host -> numeric address, of those that have one."""
    addresses = {}
    for host in hosts:
        with suppress(UnknownHost):
            addresses[host] = resolve(host)
    return addresses
