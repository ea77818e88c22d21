"""Which dead ranks died on their own, and which only because another rank did."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from relkit.hang.frames import printable
from relkit.hang.model import RankView
from relkit.hang.words import shortened
from relkit.hook.model import Op
from relkit.post_mortem.kernel_lines import is_oom_kill
from relkit.post_mortem.shutdown_abort import exception_before_abort

# What the survivors of a broken connection, or of a peer that never came, raise.
_COLLATERAL = re.compile(
    r"connection (closed|reset|refused|aborted|was closed)|closed by peer|read error|broken pipe|"
    r"timed out|timeout|socket closed|failed to (recv|send)|recvbytes|sendbytes|enforce fail|"
    r"remote (process|error)|remotepeer|unhandled system error|DistNetworkError|DistStoreError|"
    r"application timeout",
    re.IGNORECASE,
)
# What torch closes the workers with that are left, the second if the first does not help.
BY_LAUNCHER = (-signal.SIGTERM, -signal.SIGKILL)
# What somebody sends who wants a process to end.
ASKED_TO_END = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
# What a process gets for a fault of its own.
_CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)


def died(view: RankView) -> bool:
    """Known to have ended, and not normally."""
    return not view.alive and not view.absent_reason and view.exit_code != 0


def oom_killed(view: RankView) -> bool:
    """The kernel has killed it for memory: its log says so, or the counter of its cgroup does."""
    evidence = view.death
    if evidence is None or not died(view):
        return False
    if any(is_oom_kill(line, view.pid) for line in evidence.kernel_lines):
        return True
    return view.exit_code == -signal.SIGKILL and bool(evidence.oom_kills)


def is_crash(exit_code: int | None) -> bool:
    """It was ended by a signal that a process gets for a fault of its own."""
    return exit_code in _CRASHES


def may_have_aborted(view: RankView) -> bool:
    """It has ended by SIGABRT, as far as is known."""
    return died(view) and view.exit_code in (None, -signal.SIGABRT)


def raised_before_abort(view: RankView) -> str:
    """The exception that ended it, where SIGABRT hides that (`ValueError: bad batch`); else ""."""
    return exception_before_abort(view.exit_code, view.death.output) if view.death else ""


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
    if _COLLATERAL.search(view.error) or _COLLATERAL.search(raised_before_abort(view)):
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
    communication, or that came after a failure of another sort, are its doing. So is every
    SIGTERM beside a death of another kind. Where all ranks got SIGTERM, somebody ended the job,
    and none of them is at fault. A rank that died while it computed died on its own; one that
    died inside an operation may have been taken down by its peer, and counts only where nobody
    else does.
    """
    dead = [view for view in views if died(view)]
    if ended_from_outside(views) is not None:
        return ()
    own = [view for view in dead if not collateral(view)]
    candidates = [view for view in own if not _in_communication(view) or oom_killed(view)]
    if not candidates:
        candidates = [v for v in own if v.exit_code != -signal.SIGTERM or len(dead) == 1]
    known = [view for view in candidates if view.exit_code is not None]
    candidates = known or candidates
    hard = [view for view in candidates if _is_own_end(view)]
    if hard:
        first_s = min(map(_when, hard))
        candidates = [v for v in candidates if v in hard or _when(v) < first_s]
    # Who asks one rank to end is not at work where another was killed, crashed or gave up.
    not_asked = [view for view in candidates if view.exit_code != -signal.SIGTERM]
    candidates = not_asked or candidates
    candidates.sort(key=lambda view: (_when(view), view.rank))
    # Beyond the first, only those whose recorder shows that no peer took them down.
    return tuple(v for i, v in enumerate(candidates) if i == 0 or _independent(v))


def ended_from_outside(views: Sequence[RankView]) -> int | None:
    """The signal by which somebody outside has ended all ranks; None where it was otherwise.

    Of a job of a single rank nobody can say whether the job was meant or the rank.
    """
    known = [view for view in views if not view.absent_reason]
    if any(view.alive for view in known):
        return None
    ended = [view for view in known if view.exit_code is not None]
    # Who is asked a moment later than its peers may lose its connection to them first.
    own = [view for view in ended if not collateral(view)]
    if len(own) == 1 and _in_communication(own[0]):
        # The one that waited for all others: where they were asked too, it was the job.
        own = ended
    codes = {view.exit_code for view in own}
    if len(own) < 2 or len(codes) != 1:
        return None
    code = own[0].exit_code
    return -code if code in ASKED_TO_END else None


def _is_own_end(view: RankView) -> bool:
    return view.exit_code not in BY_LAUNCHER or oom_killed(view)


def _independent(view: RankView) -> bool:
    # Of several that were asked to end, the others tell nothing that the first does not.
    is_asked = view.exit_code in ASKED_TO_END
    return oom_killed(view) or (
        view.hook is not None and not _in_communication(view) and not is_asked
    )
