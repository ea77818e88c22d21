"""Which dead ranks died on their own, and which only because another rank did."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from relkit.hang.frames import printable
from relkit.hang.model import RankView
from relkit.hang.words import exit_words, shortened
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
# What the script alone raises, whatever it says of time or connections.
_OF_THE_SCRIPT = re.compile(
    r"(?:Assertion|Attribute|FileNotFound|Import|Indentation|Index|Key|Lookup|ModuleNotFound|Name|"
    r"NotImplemented|Syntax|Type|UnboundLocal|UnicodeDecode|Value|ZeroDivision)Error\b"
)
_NUMBERS = re.compile(r"\d+")
_LONGEST_ERROR = 160
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
    if raised(view) and view.exit_code == -signal.SIGABRT:
        return view.error
    return exception_before_abort(view.exit_code, view.death.output) if view.death else ""


def raised(view: RankView) -> bool:
    """It has left word of the exception that ended its script."""
    return died(view) and bool(raised_at(view))


def raised_at(view: RankView) -> str:
    """FILE:LINE of that exception; "" where it is not known."""
    return view.death.raised_at if view.death else ""


def raised_words(view: RankView, error: str = "") -> str:
    """`raised ValueError: bad batch at /job/train.py:88`.

    Args:
        error: what to say instead of the rank's own words.
    """
    told = error or shortened(printable(view.error), _LONGEST_ERROR)
    return f"raised {told} at {printable(raised_at(view))}"


def failed_alike(views: Sequence[RankView]) -> str:
    """How all ranks have failed, where they did it in the same way; "" where they did not.

    `raised ValueError at /job/train.py:88 (rank 0: bad batch 7)`, where what they say differs.

    Args:
        views: of all ranks of the job.
    """
    if len(views) < 2 or not all(map(died, views)):
        return ""
    first, is_alone = views[0], not any(map(collateral, views))
    if all(map(raised, views)):
        kinds = {_kind_and_place(view) for view in views}
        if len({view.error for view in views}) == len(kinds) == 1:
            return raised_words(first)
        is_same = len({_NUMBERS.sub("", view.error) for view in views}) == 1
        if len(kinds) > 1 or not (is_same or is_alone):
            return ""
        kind, _, said = printable(first.error).partition(": ")
        example = f" (rank {first.rank}: {shortened(said, _LONGEST_ERROR)})" if said else ""
        return raised_words(first, kind) + example
    is_unknown = not any(view.error or raised_before_abort(view) for view in views)
    codes = {view.exit_code for view in views}
    if is_unknown and is_alone and len(codes) == 1 and (first.exit_code or 0) > 0:
        return exit_words(first.exit_code)
    return ""


def is_before_first_step(views: Sequence[RankView]) -> bool:
    """No recorder shows that a rank has begun a collective."""
    hooks = [view.hook for view in views if view.hook is not None]
    return not any(c.seq >= 0 for hook in hooks for c in hook.communicators) and not any(
        op.communicates and op.seq >= 0 for hook in hooks for op in (*hook.in_flight, *hook.recent)
    )


def _kind_and_place(view: RankView) -> tuple[str, str]:
    return view.error.partition(":")[0], raised_at(view)


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
    errors = (view.error, raised_before_abort(view))
    if any(_COLLATERAL.search(each) and not _OF_THE_SCRIPT.match(each) for each in errors):
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
        candidates = [v for v in own if _is_not_asked(v) or len(dead) == 1]
    known = [view for view in candidates if view.exit_code is not None]
    candidates = known or candidates
    hard = [view for view in candidates if _is_own_end(view)]
    if hard:
        first_s = min(map(_when, hard))
        candidates = [v for v in candidates if v in hard or _when(v) < first_s]
    # Who asks one rank to end is not at work where another was killed, crashed or gave up.
    not_asked = [view for view in candidates if _is_not_asked(view)]
    candidates = not_asked or candidates
    candidates.sort(key=lambda view: (_when(view), view.rank))
    # Beyond the first, only those of which it is known that no peer took them down.
    first = candidates[:1]
    return (*first, *(v for v in candidates[1:] if _independent(v) or _raised_alike(v, first[0])))


def ended_from_outside(views: Sequence[RankView]) -> int | None:
    """The signal by which somebody outside has ended all ranks; None where it was otherwise.

    Of a job of a single rank nobody can say whether the job was meant or the rank.
    """
    known = [view for view in views if not view.absent_reason]
    if any(view.alive for view in known):
        return None
    ended = [view for view in known if view.exit_code is not None]
    if any(_is_own_exception(view) for view in ended):
        return None
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
    return view.exit_code not in BY_LAUNCHER or oom_killed(view) or raised(view)


def _is_not_asked(view: RankView) -> bool:
    return view.exit_code != -signal.SIGTERM or raised(view)


def _is_own_exception(view: RankView) -> bool:
    return raised(view) and bool(_OF_THE_SCRIPT.match(view.error))


def _raised_alike(view: RankView, other: RankView) -> bool:
    return raised(view) and raised(other) and _kind_and_place(view) == _kind_and_place(other)


def _independent(view: RankView) -> bool:
    # Of several that were asked to end, the others tell nothing that the first does not.
    is_asked = view.exit_code in ASKED_TO_END
    return (
        oom_killed(view)
        or _is_own_exception(view)
        or (view.hook is not None and not _in_communication(view) and not is_asked)
    )
