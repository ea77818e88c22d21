"""How to reach a node of Slurm's: under its name, or at the address that Slurm has for it."""

from __future__ import annotations

import re
import socket
import subprocess

from relkit.launch.peers.rendezvous_host import NoRendezvousHost

_TIMEOUT_S = 10.0
_ADDRESS = re.compile(r"(?:^|\s)NodeAddr=(\S+)")


def slurm_address(name: str) -> str:
    """The name where it resolves, else the NodeAddr of Slurm's configuration.

    Raises:
        NoRendezvousHost: neither is known on this node.
    """
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError as error:
        reason = error.strerror or str(error)
    try:
        done = subprocess.run(
            ["scontrol", "--oneliner", "show", "node", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
        match = _ADDRESS.search(done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        match = None
    if match is None or match[1] == name:
        raise NoRendezvousHost(
            f"Slurm's node {name} cannot be reached under that name from here: {reason}"
        )
    return match[1]
