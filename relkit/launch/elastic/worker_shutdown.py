"""torch's way to end its workers, the same whichever torch is installed.

What `_shutdown` takes beside the signal is `is_restart` up to torch 2.7, nothing up to 2.11, and
`timeout` since.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext


def shut_down(
    by_torch: Callable[..., None],
    context: PContext | None,
    death_sig: signal.Signals,
    more: Sequence[Any],
    how: Mapping[str, Any],
    limit_s: int | None,
) -> None:
    """Have torch end its workers.

    Args:
        by_torch: its own `_shutdown`.
        context: of the workers; None before there are any.
        death_sig, more, how: what torch has called with.
        limit_s: the longest that a worker may take after the signal, s; None for torch's.
    """
    call = inspect.signature(by_torch).bind(death_sig, *more, **how)
    takes = call.signature.parameters
    if limit_s is not None and "timeout" in takes:
        call.arguments["timeout"] = min(limit_s, call.arguments.get("timeout", limit_s))
    elif limit_s is not None and context is not None:
        # That torch keeps its own limit, and then finds nobody left to wait for.
        context.close(death_sig, limit_s)
    if "is_restart" in takes:
        # Else that torch closes the rendezvous, for all nodes and for good, also where only this
        # node leaves. Its launcher does that where the job ends, as in later ones.
        call.arguments["is_restart"] = True
    by_torch(*call.args, **call.kwargs)
