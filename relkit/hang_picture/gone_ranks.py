"""Which of the processes that were captured have ended since: nothing can be asked of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from relkit.findings import Report
from relkit.hang.model import RankView
from relkit.hang_picture.actions import Action
from relkit.process import procfs
from relkit.ranks import RankSet

# Of --on-hang: the launcher ends the workers as soon as the verdict is shown.
_ENDING = ("restart", "abort")


def gone_ranks(report: Report, views: Sequence[RankView], actions: Sequence[Action]) -> RankSet:
    """Find out whose processes are known to have ended.

    Args:
        report: the verdict; after the death of a rank torch ends all others.
        views: of all ranks, as they were captured.
        actions: what relkit did.
    """
    facts = report.facts
    are_ended = (
        facts.get("is_hang") is False
        or facts.get("action") in _ENDING
        or any(action.ends_ranks for action in actions)
    )
    if are_ended:
        return RankSet.of(view.rank for view in views)
    own_host = socket.gethostname() if procfs.is_own() else ""
    return RankSet.of(
        view.rank for view in views if not view.alive or (own_host and _has_gone(view, own_host))
    )


def _has_gone(view: RankView, own_host: str) -> bool:
    if view.host != own_host or view.pid <= 0:
        return False
    try:
        return not procfs.is_same_process(view.pid, view.hook.start_ticks if view.hook else 0)
    except OSError:
        return False
