"""How a node leaves torch's rendezvous while the other nodes go on."""

from __future__ import annotations

import time

from torch.distributed.elastic.rendezvous import RendezvousHandler

# Several times what one exchange with the store takes; the node leaves in any case.
_LIMIT_S = 5.0


def leave_rendezvous(handler: RendezvousHandler) -> None:
    """Take this node off the list of members, so that the others meet again at once.

    torch's way to shut a rendezvous down closes it for all nodes. A node that only stops its
    heartbeats is taken for a member until three of them are missing, 15 s by default, and nobody
    meets again before.

    Args:
        handler: of this job; one that keeps no list of members is left alone.

    Raises:
        RendezvousError: the list could not be changed: the others have to wait.
    """
    # A heartbeat inside the store's client would also abort this process while it ends.
    stop = getattr(handler, "_stop_heartbeats", None)
    if stop is not None:
        stop()
    operations = getattr(handler, "_op_executor", None)
    if operations is not None:
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousExitOp

        operations.run(_RendezvousExitOp(), time.monotonic() + _LIMIT_S)
