"""Collects which network ports of this host are up, Ethernet or RDMA, and how fast each is."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import psutil

from relkit.netcheck.model import Port

SYS_CLASS = Path("/sys/class")
NCCL_CONF = Path("/etc/nccl.conf")
SETTINGS = (
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_NET",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
)
_ACTIVE = "4:"
_RATE = re.compile(r"([\d.]+)\s*Gb/sec")
_MAX_MBPS = 10_000_000
_MAX_PORTS = 64
_MAX_BYTES = 65536
# What the kernel calls the kinds of an interface's hardware, include/uapi/linux/if_arp.h.
_ETHERNET, _INFINIBAND = 1, 32


class FabricSource(Protocol):
    """One way of finding a host's ports."""

    def ports(self) -> tuple[Port, ...]:
        """All ports that are up."""


class SysfsFabric:
    """Ports as the kernel shows them.

    Args:
        sys_class: the kernel's folder of devices.
        networks: gives interface -> its network, as "10.8.0.0/16".
    """

    def __init__(
        self,
        sys_class: Path = SYS_CLASS,
        networks: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._sys_class = sys_class
        self._networks = networks or interface_networks

    def ports(self) -> tuple[Port, ...]:
        """RDMA ports first; virtual interfaces are left out, whose speed means nothing."""
        return (*self._rdma(), *self._interfaces())[:_MAX_PORTS]

    def _rdma(self) -> Iterator[Port]:
        for device in _entries(self._sys_class / "infiniband"):
            for port in _entries(device / "ports"):
                if not _text(port / "state").startswith(_ACTIVE):
                    continue
                rate = _RATE.match(_text(port / "rate"))
                speed_mbps = round(float(rate[1]) * 1000) if rate else 0
                kind = _rdma_kind(device.name, _text(port / "link_layer"))
                netdev = min(
                    (path.name for path in _entries(device / "device" / "net")), default=""
                )
                if kind and 0 < speed_mbps <= _MAX_MBPS:
                    yield Port(device.name, kind, speed_mbps, interface=netdev)

    def _interfaces(self) -> Iterator[Port]:
        networks = self._networks()
        for interface in _entries(self._sys_class / "net"):
            is_real = (interface / "device").exists() or (interface / "bonding").exists()
            if not is_real or (interface / "wireless").exists():
                continue
            hardware, speed_mbps = _number(interface / "type"), _number(interface / "speed")
            kind = {_ETHERNET: "ethernet", _INFINIBAND: "ipoib"}.get(hardware, "")
            if kind and _text(interface / "operstate") == "up" and 0 < speed_mbps <= _MAX_MBPS:
                yield Port(
                    interface.name, kind, speed_mbps, _number(interface / "mtu"),
                    interface.name, networks.get(interface.name, ""),
                )  # fmt: skip


def interface_networks() -> dict[str, str]:
    """The network of each interface that has an address which others can reach; IPv4 first."""
    networks: dict[str, str] = {}
    for name, addresses in psutil.net_if_addrs().items():
        for entry in sorted(addresses, key=lambda entry: entry.family != socket.AF_INET):
            if entry.family not in (socket.AF_INET, socket.AF_INET6) or not entry.netmask:
                continue
            try:
                address = ipaddress.ip_address(entry.address.partition("%")[0])
                bits = bin(int(ipaddress.ip_address(entry.netmask))).count("1")
                network = ipaddress.ip_network(f"{address}/{bits}", strict=False)
            except ValueError:
                continue
            if not address.is_loopback and not address.is_link_local:
                networks.setdefault(name, str(network))
    return networks


def job_settings(sent: Mapping[str, object], conf: Path = NCCL_CONF) -> str:
    """What chooses the transport of a job here: "NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=eth0".

    Args:
        sent: variables of whoever started the check; they come before this host's own.
        conf: the file that NCCL reads.
    """
    lines = (line.partition("=") for line in _text(conf).splitlines())
    of_file = {key.strip(): value.strip() for key, equals, value in lines if equals}
    known = {**of_file, **os.environ, **{key: str(value) for key, value in sent.items()}}
    words = [f"{key}={known[key]}" for key in SETTINGS if known.get(key)]
    return " ".join(word for word in words if word.isprintable() and " " not in word)


def own_settings() -> dict[str, str]:
    """The variables of this process that choose a job's transport."""
    return {key: os.environ[key] for key in SETTINGS if os.environ.get(key)}


def _rdma_kind(device: str, layer: str) -> str:
    if layer == "InfiniBand":
        return "infiniband"
    if layer == "Ethernet":
        return "roce"
    return "efa" if device.startswith("efa") else ""


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(_MAX_BYTES).strip()
    except OSError:
        # An interface that is down has no speed to read.
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() and len(text) < 10 else 0
