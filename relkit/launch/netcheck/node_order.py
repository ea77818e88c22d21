"""Which node number this host has when the topology file decides on the order of ranks."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Collection, Sequence
from dataclasses import replace

import psutil

from relkit.errors import RelkitError, UsageProblem
from relkit.launch.job.node_name import node_name
from relkit.launch.netcheck.node_info import is_loopback
from relkit.net.interface import resolve
from relkit.topology import RankOrder, Topology, crossings, rank_order

_ONE_LINE = "Write one line for each node; RELKIT_NODE_NAME sets this node's name."
_IPV4 = re.compile(r"[0-9.]+")


def own_names() -> frozenset[str]:
    """What this host may be called in a topology file: its names, and its addresses.

    A pod has an address of its own, and is told that of its host by NODE_IP.
    """
    host, of_pods_host = socket.gethostname(), os.environ.get("NODE_IP", "").strip()
    names = {node_name(), host, host.partition(".")[0]}
    if _is_address(of_pods_host):
        names.add(of_pods_host)
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family in (socket.AF_INET, socket.AF_INET6):
                names.add(address.address.partition("%")[0])
    return frozenset(name for name in names if name and not _is_every_host(name))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_every_host(name: str) -> bool:
    # "localhost" and the loopback addresses are every host's.
    is_address = ":" in name or bool(_IPV4.fullmatch(name))
    return name == "localhost" or (is_address and is_loopback(name))


def order_nodes(topology: Topology, nodes: int, master: str) -> RankOrder:
    """The order of the job's nodes; the master comes first, because its node must be number 0.

    Every node computes it by itself from the same file, and gets the same order.

    Args:
        topology: exactly the nodes of the job.
        nodes: how many there are.
        master: --master-addr.

    Raises:
        UsageProblem: the file is about other nodes, or does not know the master.
    """
    if len(topology.places) != nodes:
        raise UsageProblem(
            f"--topology names {len(topology.places)} nodes, and the job has {nodes}",
            next_step="Give a file with the nodes of this job only, or add --rdzv-backend c10d.",
        )
    first = master
    if first not in topology.places:
        try:
            first = resolve(master)
        except RelkitError:
            first = ""
    if first not in topology.places:
        raise UsageProblem(
            f"--topology does not name the master {master}",
            next_step="Write --master-addr as the file has it.",
        )
    given = (first, *(node for node in topology.places if node != first))
    # The saving is relative to the file as it is, not to the master moved to its front.
    return replace(rank_order(topology, given), before=crossings(topology, [*topology.places]))


def named_as(nodes: Sequence[str], own: Collection[str]) -> tuple[str, ...]:
    """How a file with these nodes calls this host; empty where it does not.

    Raises:
        UsageProblem: it names this host twice.
    """
    named = tuple(node for node in nodes if node in own)
    if len(named) > 1:
        raise UsageProblem(f"--topology names this host as {', '.join(named)}", next_step=_ONE_LINE)
    return named


def number_in(order: RankOrder, own: Collection[str]) -> int:
    """This host's number in the order.

    Raises:
        UsageProblem: the file does not name this host, or names it twice.
    """
    named = named_as(order.nodes, own)
    if not named:
        raise UsageProblem("--topology does not name this host", next_step=_ONE_LINE)
    return order.nodes.index(named[0])
