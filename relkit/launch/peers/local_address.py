"""torchrun's --local-addr where the name of this host leads nowhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from relkit.own_name import OwnName, own_name

_TIMEOUT_S = 5.0
_HERE = "127.0.0.1"


def settle_local_address(
    options: argparse.Namespace,
    is_left_open: bool,
    spares: int = 0,
    look: Callable[[float], OwnName] = own_name,
) -> str:
    """Have the ranks of a single node meet on the loopback where the host's name does not resolve.

    torch tells all ranks the name of the first node's host. Where that leads to no address they
    look it up for as long as they may, silently.

    Args:
        options: of torchrun; local_addr may be set.
        is_left_open: no option of the command line says where the nodes meet.
        spares: launchers beyond --nnodes.
        look: tells the host's name.

    Returns:
        a line on what is wrong; "" where nothing is, or the name is not needed.
    """
    if options.local_addr:
        return ""
    by_name = options.standalone or options.rdzv_backend != "static"
    if not by_name and not is_left_open:
        return ""
    own = look(_TIMEOUT_S)
    if not own.problem:
        return ""
    low, _, high = options.nnodes.partition(":")
    if int(high or low) == 1 and not spares:
        options.local_addr = _HERE
        return f"the name of this host, {own.name!r}, does not resolve: its ranks meet at {_HERE}"
    return (
        f"the name of this host, {own.name!r}, does not resolve ({own.problem}). If the ranks "
        "shall meet here, they may wait for it until they give up: add it to /etc/hosts, or give "
        "--local-addr ADDRESS"
    )
