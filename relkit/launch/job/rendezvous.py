"""torch's rendezvous where its store does not answer, and how a node leaves it."""

from __future__ import annotations

import time
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousHandler
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.job.settings import Log

# Several times what one exchange with the store takes; the node leaves in any case.
_LIMIT_S = 5.0


def bound(handler: RendezvousHandler, log: Log) -> None:
    """Have a handler's calls return although the host of its store is cut off.

    The launcher's main thread makes them while workers run and when they have ended, and does
    nothing else meanwhile: it neither sees that a worker has failed nor handles a signal.

    Args:
        handler: of this job.
        log: writes one line to the terminal.
    """
    calls = BoundedCalls("relkit-rendezvous")
    ask_waiting, shut_down = handler.num_nodes_waiting, handler.shutdown

    def num_nodes_waiting() -> int:
        try:
            return calls.call(ask_waiting, timeout_s=_LIMIT_S)
        except NoAnswer:
            # Nobody can come while the store does not answer; when it does, it is asked again.
            return 0

    def shutdown() -> bool:
        try:
            return calls.call(shut_down, timeout_s=_LIMIT_S)
        except NoAnswer:
            log("the rendezvous store does not answer: the other nodes notice by themselves")
            return False

    bounded: Any = handler
    bounded.num_nodes_waiting, bounded.shutdown = num_nodes_waiting, shutdown


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
    try:
        BoundedCalls("relkit-leave").call(_leave, handler, timeout_s=2 * _LIMIT_S)
    except NoAnswer:
        raise RendezvousTimeoutError("the rendezvous store does not answer") from None


def _leave(handler: RendezvousHandler) -> None:
    # A heartbeat inside the store's client would also abort this process while it ends.
    stop = getattr(handler, "_stop_heartbeats", None)
    if stop is not None:
        stop()
    operations = getattr(handler, "_op_executor", None)
    if operations is not None:
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousExitOp

        operations.run(_RendezvousExitOp(), time.monotonic() + _LIMIT_S)
