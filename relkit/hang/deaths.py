"""Which dead ranks died on their own, and which only because another rank did."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from relkit.hang.frames import printable
from relkit.hang.model import RankView
from relkit.hang.words import shortened
from relkit.hook.model import Op

# What the survivors of a broken connection, or of a peer that never came, raise.
_COLLATERAL = re.compile(
    r"connection (closed|reset|refused|aborted|was closed)|closed by peer|read error|broken pipe|"
    r"timed out|timeout|socket closed|failed to (recv|send)|recvbytes|sendbytes|enforce fail|"
    r"remote (process|error)|remotepeer|unhandled system error|DistNetworkError|DistStoreError|"
    r"application timeout",
    re.IGNORECASE,
)
_BY_LAUNCHER = (-signal.SIGTERM, -signal.SIGKILL)


def died(view: RankView) -> bool:
    """Known to have ended, and not normally."""
    return not view.alive and not view.absent_reason and view.exit_code != 0


def left(view: RankView) -> bool:
    """Ended normally."""
    return not view.alive and not view.absent_reason and view.exit_code == 0


def last_communication(view: RankView) -> Op | None:
    """Its newest communication: one in flight, else the one that ended last."""
    if view.hook is None:
        return None
    open_ = [op for op in view.hook.in_flight if op.communicates]
    done = [op for op in view.hook.recent if op.communicates]
    if open_:
        return max(open_, key=lambda op: op.start_ns)
    return max(done, key=lambda op: op.end_ns, default=None)


def collateral(view: RankView) -> bool:
    """It failed because of a peer: its error, or the end of its last communication, says so."""
    if _COLLATERAL.search(view.error):
        return True
    last = last_communication(view)
    return last is not None and last.failed


def consequence(view: RankView) -> str:
    """How a rank failed because of another, without the addresses that differ by rank."""
    error = printable(view.error)
    match = _COLLATERAL.search(error)
    if not match:
        return shortened(error, 80)
    kind, colon, _ = error.partition(":")
    prefix = f"{kind}: " if colon and kind.replace(".", "").isidentifier() else ""
    return prefix + match[0]


def _in_communication(view: RankView) -> bool:
    last = last_communication(view)
    return last is not None and (last.end_ns == 0 or last.failed)


def _when(view: RankView) -> float:
    return view.failed_unix_s or float("inf")


def primary_deaths(views: Sequence[RankView]) -> tuple[RankView, ...]:
    """The ranks that died first and on their own, earliest first; often one, or none.

    A launcher ends the other ranks once one has failed: SIGTERM and SIGKILL of a rank that sat in
    communication, or that came after a failure of another sort, are its doing. A rank that
    died while it computed died on its own; one that died inside an operation may have been
    taken down by its peer, and counts only where nobody else does.
    """
    dead = [view for view in views if died(view)]
    own = [view for view in dead if not collateral(view)]
    candidates = [view for view in own if not _in_communication(view)]
    if not candidates:
        candidates = [v for v in own if v.exit_code != -signal.SIGTERM or len(dead) == 1]
    known = [view for view in candidates if view.exit_code is not None]
    candidates = known or candidates
    hard = [view for view in candidates if view.exit_code not in _BY_LAUNCHER]
    if hard:
        first_s = min(map(_when, hard))
        candidates = [v for v in candidates if v in hard or _when(v) < first_s]
    candidates.sort(key=lambda view: (_when(view), view.rank))
    # Beyond the first, only those whose recorder shows that no peer took them down.
    return tuple(v for i, v in enumerate(candidates) if i == 0 or _independent(v))


def _independent(view: RankView) -> bool:
    return view.hook is not None and not _in_communication(view)
