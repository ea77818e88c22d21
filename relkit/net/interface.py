"""Which of this host's addresses and interfaces leads to a peer, and what that interface is."""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
from dataclasses import dataclass

import psutil

from relkit.errors import RelkitError

_TOOL_S = 5.0
_NAMES: dict[int, str] = {
    psutil.NIC_DUPLEX_FULL: "full",
    psutil.NIC_DUPLEX_HALF: "half",
    psutil.NIC_DUPLEX_UNKNOWN: "",
}


class NoRoute(RelkitError):
    """A peer's name has no address, or no route leads there."""

    next_step = "Check the name, and the routes with `ip route get ADDRESS`."


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one peer.

    Args:
        peer: numeric address of the peer; address: ours on that way.
        interface: its name; "" where it could not be told.
        mtu, speed_mbps, duplex ("full", "half"): of the interface; 0 or "" where unknown.
    """

    peer: str
    address: str
    interface: str = ""
    mtu: int = 0
    speed_mbps: int = 0
    duplex: str = ""

    @property
    def loopback(self) -> bool:
        """It never leaves this host."""
        return ipaddress.ip_address(self.address.partition("%")[0]).is_loopback or (
            self.peer == self.address
        )


def resolve(host: str, deadline_s: float = _TOOL_S) -> str:
    """The first numeric address of a host name; a numeric one as it is.

    Raises:
        NoRoute: unknown name, or the name service did not answer in time.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
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
        raise NoRoute(f"the name service did not answer for {host} in {deadline_s:g} s") from error
    except OSError as error:
        raise NoRoute(f"cannot look up {host}: getent does not run ({error.strerror})") from error
    words = done.stdout.split()
    if done.returncode or not words:
        raise NoRoute(f"{host} is not a known host name")
    return words[0]


def route_to(peer: str, deadline_s: float = _TOOL_S) -> Route:
    """The way to a peer, by name or address; nothing is sent to it.

    Raises:
        NoRoute: it has no address, or there is no route.
    """
    address = resolve(peer, deadline_s)
    own = _own_address(address)
    name = _device(address, own, deadline_s)
    facts = psutil.net_if_stats().get(name)
    if facts is None:
        return Route(address, own, name)
    # The kernel says "unknown" as -1 or as 2**32 - 1, depending on the driver.
    speed = facts.speed if 0 < facts.speed < 2**31 else 0
    return Route(address, own, name, facts.mtu, speed, _NAMES.get(facts.duplex, ""))


def _own_address(address: str) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket asks the routing table and sends nothing.
            probe.connect((address, 9))
        except OSError as error:
            raise NoRoute(f"no route to {address}: {error.strerror}") from error
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
        if any(one.address.partition("%")[0] == own for one in addresses):
            return name
    return ""
