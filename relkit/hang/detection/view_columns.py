"""What is known of ranks as arrays, as the detector looks at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.hang.columns.operations import key_of, kind_number
from relkit.hang.columns.ranks import FlightColumns, RankColumns, digest, process_numbers
from relkit.hang.model import RankView
from relkit.hang.stackclass import SETUP
from relkit.hook.model import HookState


def columns_of(ranks: Sequence[RankView]) -> RankColumns:
    """Views as arrays."""
    live = [view for view in ranks if view.alive and view.hook is not None]
    flights = [
        (view.rank, key_of(op), kind_number(op, view.hook),
         max(0, view.hook.now_ns - op.start_ns) / 1e9)
        for view in live if view.hook is not None for op in view.hook.in_flight
    ]  # fmt: skip

    def of(column: Callable[[RankView], float], dtype: type) -> npt.NDArray[Any]:
        return np.array([column(view) for view in ranks], dtype)

    def hook(fact: Callable[[HookState], float], dtype: type) -> npt.NDArray[Any]:
        known = (None if view.hook is None else fact(view.hook) for view in ranks)
        return np.array([0 if each is None else each for each in known], dtype)

    return RankColumns(
        rank=of(lambda view: view.rank, np.int64),
        process=process_numbers(
            of(lambda view: _host_digest(view.host), np.uint64),
            of(lambda view: view.pid & 0xFFFFFFFF, np.uint64),
        ),
        alive=of(lambda view: view.alive, np.bool_),
        state=of(lambda view: ord(view.process_state[:1] or "\0"), np.int64),
        left=of(lambda view: not view.alive and view.exit_code == 0, np.bool_),
        known=of(lambda view: view.alive and view.hook is not None, np.bool_),
        unheard=of(is_unheard, np.bool_),
        set_up=hook(only_set_up, np.bool_),
        started=hook(lambda state: state.started, np.int64),
        finished=hook(lambda state: state.finished, np.int64),
        idle_s=hook(lambda state: max(0, state.now_ns - state.last_finish_ns) / 1e9, np.float64),
        used_s=of(lambda view: view.cpu.used_s, np.float64),
        window_s=of(lambda view: view.cpu.window_s, np.float64),
        waited_s=of(lambda view: view.cpu.waited_s, np.float64),
        flights=FlightColumns.of(flights),
    )


@lru_cache(maxsize=1024)
def _host_digest(host: str) -> int:
    return digest(host)


def is_unheard(view: RankView) -> bool:
    """It lives, and a source that has spoken of it knows nothing of it any more."""
    return view.alive and view.hook is None and bool(view.sources.said)


def only_set_up(state: HookState) -> bool:
    """All that it has begun so far is to make its groups: what follows may be long imports.

    A group is made in one operation. Brief looks do not name those that have finished.
    """
    begun = any(c.seq >= 0 for c in state.communicators)
    begun = begun or any(op.name not in SETUP for op in state.in_flight)
    return not begun and state.started <= len(state.communicators)
