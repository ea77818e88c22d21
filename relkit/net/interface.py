"""The route to a peer: this host's address and interface on it."""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
import subprocess
from dataclasses import dataclass

import psutil

from relkit.errors import RelkitError
from relkit.hosts import numeric_address

_TOOL_S = 5.0
_NAMES: dict[int, str] = {
    psutil.NIC_DUPLEX_FULL: "full",
    psutil.NIC_DUPLEX_HALF: "half",
    psutil.NIC_DUPLEX_UNKNOWN: "",
}


# Routes that exclude a destination, by what the kernel answers (ip-route(8)).
_EXCLUDED = {errno.EINVAL: "a blackhole route", errno.EACCES: "a prohibit route"}


class NoRoute(RelkitError):
    """No route leads to a peer."""

    next_step = "Look at the routes with `ip route get ADDRESS`."


class UnknownHost(NoRoute):
    """A peer's name has no address."""

    next_step = "Check the name, and that this host can resolve it."


@dataclass(frozen=True, slots=True)
class Route:
    """The route to one peer.

    Args:
        peer: numeric address of the peer; address: our own address on that route.
        interface: its name; "" if unknown.
        mtu, speed_mbps, duplex ("full", "half"): of the interface; 0 or "" if unknown.
    """

    peer: str
    address: str
    interface: str = ""
    mtu: int = 0
    speed_mbps: int = 0
    duplex: str = ""

    @property
    def loopback(self) -> bool:
        """Packets on it never leave this host."""
        return ipaddress.ip_address(self.address.partition("%")[0]).is_loopback or (
            self.peer == self.address
        )


def resolve(host: str, deadline_s: float = _TOOL_S) -> str:
    """The first numeric address of a host name; a numeric one as it is.

    Raises:
        UnknownHost: unknown name, or the name service did not answer in time.
    """
    if address := numeric_address(host):
        return address
    # getaddrinfo has no deadline; a child that runs it has one.
    try:
        done = subprocess.run(
            ["getent", "ahosts", "--", host],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=deadline_s,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise UnknownHost(
            f"the name service did not answer for {host} in {deadline_s:g} s"
        ) from error
    except OSError as error:
        raise UnknownHost(
            f"cannot look up {host}: getent does not run ({error.strerror})"
        ) from error
    words = done.stdout.split()
    if done.returncode or not words:
        raise UnknownHost(f"{host} is not a known host name")
    return words[0]


def route_to(peer: str, deadline_s: float = _TOOL_S) -> Route:
    """The route to a peer, given by name or address; nothing is sent to it.

    Raises:
        UnknownHost: it has no address.
        NoRoute: there is no route.
    """
    address = resolve(peer, deadline_s)
    own = own_address(address)
    name = _device(address, own, deadline_s)
    stats = psutil.net_if_stats().get(name)
    if stats is None:
        return Route(address, own, name)
    # The kernel reports an unknown speed as -1 or as 2**32 - 1, depending on the driver.
    speed = stats.speed if 0 < stats.speed < 2**31 else 0
    return Route(address, own, name, stats.mtu, speed, _NAMES.get(stats.duplex, ""))


def own_address(address: str) -> str:
    """This host's address on the route to a numeric address; nothing is sent.

    Raises:
        NoRoute: the routing table has no route, or one that excludes the address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket asks the routing table and sends nothing.
            probe.connect((address, 9))
        except OSError as error:
            why = _EXCLUDED.get(error.errno or 0, error.strerror)
            raise NoRoute(f"no route to {address}: {why}") from error
        return str(probe.getsockname()[0])


def _device(address: str, own: str, deadline_s: float) -> str:
    """Name of the interface: the kernel's choice where `ip` is installed, else by our address."""
    try:
        done = subprocess.run(
            ["ip", "-j", "route", "get", address],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=deadline_s,
            check=True,
        )
        name = json.loads(done.stdout)[0]["dev"]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return _device_of(own)
    return str(name)


def _device_of(own: str) -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == own for entry in addresses):
            return name
    return ""
