"""What this node is called, and which text may be a node's name."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

# Anything else could be read as an option or a path, or change what a terminal shows.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}")
# How schedulers call this node, before its own name for itself.
_VARIABLES = ("RELKIT_NODE_NAME", "SLURMD_NODENAME", "NODE_NAME")


def is_node_name(text: str) -> bool:
    """Whether a node may be called this."""
    return bool(_NAME.fullmatch(text))


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """This node's name: the scheduler's, else the host name."""
    for variable in _VARIABLES:
        if is_node_name(environ.get(variable, "")):
            return environ[variable]
    host = socket.gethostname()
    return host if is_node_name(host) else "node"
