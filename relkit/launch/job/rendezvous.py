"""torch's rendezvous: its calls get a deadline, and a single node can leave it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError,
    RendezvousTimeoutError,
)

from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.job.settings import Log
from relkit.log_lines import warning

# Several times what one exchange with the store takes, s.
_LIMIT_S = 5.0
_GOES_ON = (
    "the rendezvous store, which is in no launcher of the job, has gone: the job goes on, but its"
    " workers cannot be started again"
)


def limit_waits(
    handler: RendezvousHandler,
    calls: BoundedCalls,
    log: Log,
    is_outside: Callable[[], bool] = lambda: False,
) -> None:
    """Have a handler's calls return although the host of its store is cut off, or has gone.

    The launcher's main thread makes them while workers run and when they have ended. As long as
    one lasts, that thread neither sees that a worker has failed nor handles a signal.

    Args:
        handler: of this job.
        calls: makes them.
        log: writes one line to the terminal.
        is_outside: the store is in no launcher of the job: its end is not the job's.
    """
    gone = False
    ask_waiting, shut_down = handler.num_nodes_waiting, handler.shutdown

    def num_nodes_waiting() -> int:
        nonlocal gone
        can_do_without = is_outside()
        # torch's client does not connect again, and prints a page of C++ frames at each call.
        if gone:
            return 0
        try:
            return calls.call(ask_waiting, timeout_s=_LIMIT_S)
        except NoAnswer:
            # No node can join while the store does not answer; torch soon asks again.
            return 0
        except RendezvousConnectionError:
            if not can_do_without:
                raise
            gone = True
            log(warning(_GOES_ON))
            with suppress(NoAnswer):
                calls.call(getattr(handler, "_stop_heartbeats", int), timeout_s=_LIMIT_S)
            return 0

    def shutdown() -> bool:
        if gone:
            return False
        try:
            return calls.call(shut_down, timeout_s=_LIMIT_S)
        except NoAnswer:
            log(warning("the rendezvous store does not answer: the other nodes are not notified"))
            return False

    limited: Any = handler
    limited.num_nodes_waiting, limited.shutdown = num_nodes_waiting, shutdown


def forget_workers_store(handler: RendezvousHandler) -> None:
    """Have the workers of the next attempt meet in a fresh store.

    torch (seen in 2.13) makes the store that workers meet in once, and keeps it over restarts: new
    workers then find the addresses of the dead ones in it, and gloo fails to connect. Forgetting it
    makes torch create a fresh one for each round.

    Args:
        handler: of this job; of a static one, see StaticMeetings.
    """
    for name in ("_bootstrap_store_info", "_shared_tcp_store_server"):
        if hasattr(handler, name):
            setattr(handler, name, None)


def keep_alive_as_asked(handler: RendezvousHandler, parameters: RendezvousParameters) -> None:
    """Have heartbeats be sent as --rdzv-conf says; torch 2.4 to 2.6 do not read that.

    Args:
        handler: of this job, before its first meeting; parameters: that it was made by.
    """
    settings: Any = getattr(handler, "settings", None)
    interval_s = parameters.get_as_int("keep_alive_interval")
    attempts = parameters.get_as_int("keep_alive_max_attempt")
    # All parts of a handler share these settings, which are frozen.
    if settings is not None and interval_s is not None:
        object.__setattr__(settings, "keep_alive_interval", timedelta(seconds=interval_s))
    if settings is not None and attempts is not None:
        object.__setattr__(settings, "keep_alive_max_attempt", attempts)


def leave_rendezvous(handler: RendezvousHandler, calls: BoundedCalls) -> None:
    """Take this node off the list of members, so that the others meet again at once.

    torch's way to shut a rendezvous down closes it for all nodes. A node that only stops its
    heartbeats is taken for a member until three of them are missing, 15 s by default, and nobody
    meets again before.

    Args:
        handler: of this job; one that keeps no list of members is left alone.
        calls: makes the calls to its store.

    Raises:
        RendezvousError: the list could not be changed: the others have to wait.
    """
    try:
        calls.call(_leave, handler, timeout_s=2 * _LIMIT_S)
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
