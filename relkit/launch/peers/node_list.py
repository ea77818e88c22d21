"""`--nodes hosts.txt`: the launchers meet on its first host."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from relkit.hosts import NodeList
from relkit.launch.peers.rendezvous_host import RendezvousHost


def first_of(nodes: NodeList, command: Sequence[str]) -> RendezvousHost:
    """The first node of a list; torch finds out which host that is.

    Args:
        nodes: the same on all nodes, in the same order.
        command: the script and its arguments: another job on the same nodes meets elsewhere.
    """
    targets = [spec.target for spec in nodes.nodes]
    words = "\0".join((*targets, "", *command)).encode(errors="surrogateescape")
    job_id = f"nodes-{hashlib.sha256(words).hexdigest()[:16]}"
    return RendezvousHost("--nodes", job_id, targets[0], nodes=len(targets))
