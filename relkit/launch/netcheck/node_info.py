"""What each node publishes about itself before the network check: name, address, state."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from relkit.launch.job.node_name import is_node_name
from relkit.text.foreign_json import parse_json


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node of a rendezvous.

    Args:
        number: in the rendezvous; name: for people and schedulers.
        address: that the others reach it by; "" where it knows none.
        passed_check_id: of the last check that this node passed; "" for none.
        holds_store: the rendezvous store's server runs in its launcher.
        bad_links: why its link check failed; "" where it did not, or was not asked for.
    """

    number: int
    name: str
    address: str = ""
    passed_check_id: str = ""
    holds_store: bool = False
    bad_links: str = ""

    def encode(self) -> bytes:
        """As a note for the store."""
        return json.dumps(asdict(self)).encode()


def decode_node_info(note: bytes, number: int) -> NodeInfo | None:
    """A node's note; None where it is none, or another node's."""
    try:
        plain = parse_json(note)
        node = NodeInfo(**plain)
    except (ValueError, TypeError):
        return None
    texts = (node.name, node.address, node.passed_check_id, node.bad_links)
    if not all(isinstance(text, str) for text in texts) or node.number != number:
        return None
    return node if is_node_name(node.name) and isinstance(node.holds_store, bool) else None


def unique_names(node_infos: Sequence[NodeInfo]) -> dict[int, str]:
    """number -> name, with the number added where several nodes have one name."""
    names = [node_info.name for node_info in node_infos]
    return {
        node_info.number: node_info.name
        if names.count(node_info.name) == 1
        else f"{node_info.name}-{node_info.number}"
        for node_info in node_infos
    }


def is_loopback(address: str) -> bool:
    """The address means this host only."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True
