"""A rendezvous store outside of all jobs: torch's TCPStore, served until somebody ends it."""

from __future__ import annotations

import errno
import ipaddress
import signal
import socket
from collections.abc import Callable
from datetime import timedelta

from relkit.errors import UsageProblem

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# The server's own connection to itself, s.
_CONNECT = timedelta(seconds=30)


def serve(address: str, port: int, ready: Callable[[str], None]) -> signal.Signals:
    """Serve launchers until a signal asks for the end.

    Args:
        address: to listen on; no other address of this host is listened on.
        port: 0 takes one that is free.
        ready: gets the endpoint, `127.0.0.1:29400`, once launchers may come.

    Returns:
        The signal.

    Raises:
        UsageProblem: it cannot listen there.
    """
    # Before there are threads of torch's, which would take it instead of this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    listener = _listen(address, port)
    # Not at the top: whoever asks for an address that is not there does not wait for it.
    from torch._C._distributed_c10d import TCPStore

    host, bound = listener.getsockname()[:2]
    # It owns the listener from here on, and serves in threads of its own.
    store = TCPStore(
        _own_address(host),
        bound,
        is_master=True,
        timeout=_CONNECT,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    ready(_endpoint(address, bound))
    number = signal.sigwait(_ENDING)
    del store
    return signal.Signals(number)


def is_open_to_others(address: str) -> bool:
    """Other hosts can reach what listens there."""
    try:
        return not ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True


def _listen(address: str, port: int) -> socket.socket:
    try:
        (family, *_), *_ = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        return socket.create_server((address, port), family=family)
    # UnicodeError: a name with a part that is empty or too long.
    except (OSError, UnicodeError) as error:
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        # Python adds the address, which is named already.
        why = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
        raise UsageProblem(
            f"cannot listen on {_endpoint(address, port)}: {why}",
            next_step="Choose another --port."
            if is_taken
            else "Name an address of this host with --bind.",
        ) from error


def _own_address(address: str) -> str:
    """Where this process reaches its own listener."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (asked for by --bind)
    return loopback.get(address, address)


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
