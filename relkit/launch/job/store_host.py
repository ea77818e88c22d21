"""Where the rendezvous store of a job is, and this node's address on the way to a host."""

from __future__ import annotations

import psutil

from relkit.errors import RelkitError
from relkit.net.interface import route_to


def own_address(peer: str) -> str:
    """Our address on the route to a peer; "" where there is no route."""
    try:
        return route_to(peer).address
    except RelkitError:
        return ""


def store_endpoint(store: object) -> tuple[str, int]:
    """Host and port of a TCP store, through any prefixes; ("", 0) for other stores."""
    for _ in range(10):
        inner: object = getattr(store, "underlying_store", None)
        if inner is None:
            break
        store = inner
    host, port = getattr(store, "host", ""), getattr(store, "port", 0)
    return (str(host), int(port)) if host and port else ("", 0)


def holds_store(store: object) -> bool:
    """This process hosts a TCP store."""
    _, port = store_endpoint(store)
    return bool(port) and listens_on(port)


def listens_on(port: int) -> bool:
    """This process has a listener on the port, so it is the store's server."""
    try:
        return any(
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
            for connection in psutil.Process().net_connections("tcp")
        )
    except (psutil.Error, OSError):
        return False
