"""Why a rank died, from what its host shows of it: reasons, evidence and findings; pure."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Sequence

from relkit.findings import Evidence, Finding, Status
from relkit.hang.deaths import (
    died,
    failed_alike,
    is_crash,
    oom_killed,
    raised,
    raised_before_abort,
)
from relkit.hang.frames import printable
from relkit.hang.model import RankView
from relkit.hang.words import exit_words, of_ranks, operation, shortened, size, where
from relkit.post_mortem.kernel_lines import (
    cgroup_of_oom_kill,
    is_fault_of,
    is_hardware,
    is_oom_kill,
    xid_meaning,
    xid_of,
)
from relkit.post_mortem.model import DeathEvidence
from relkit.post_mortem.shutdown_abort import PREFIX, may_have_ended_in_shutdown
from relkit.ranks import RankSet

_LONGEST_REASON = 240
_OUTPUT_LINES = 3
_STACK_FRAMES = 3

OOM_ADVICE = (
    "Give the job more memory (the limit of that cgroup, the scheduler's request), or let the "
    "rank use less on its host: fewer DataLoader workers, less prefetching, no growing lists."
)
HARDWARE_ADVICE = (
    "Take the host out of the job and have the device checked (nvidia-smi -q, dcgmi diag) where "
    "the error is the hardware's; where it is the program's own, run with CUDA_LAUNCH_BLOCKING=1 "
    "or compute-sanitizer."
)
CRASH_ADVICE = (
    "A bug in native code, or memory that went bad; PYTHONFAULTHANDLER=1 in the job's environment "
    "has Python print its own lines as well."
)
SHUTDOWN_ADVICE = (
    "call torch.distributed.destroy_process_group() before the script ends, and with "
    "DistributedDataParallel, whose threads outlive that, end it with os._exit(): a thread of "
    "torch that needs Python while it shuts down aborts the process (before CPython 3.14)."
)
RAISED_ADVICE = (
    "Look at the exception, which ended the rank; the abort (SIGABRT) only hides its exit code."
)
NO_CORE_ADVICE = "Allow core files (`ulimit -c unlimited`) and run again."
OUTSIDE_ADVICE = (
    "Look at the scheduler (time limit, preemption, `scontrol show job`, `kubectl describe pod`) "
    "and at who may have ended it by hand. No rank is at fault."
)
ALL_RAISED_ADVICE = "Read the traceback of any rank: those of the others are the same."
ALL_EXITED_ADVICE = "Read the end of any rank's log."
_OF_EXIT_CODE = {
    1: " sys.exit() with a text, and an exception, exit with code 1.",
    2: " Code 2 is Python's where the script is not there, argparse's where an option is wrong.",
}


def last_operation(view: RankView) -> str:
    """`all_reduce #41 of the default group, which ended 0.2 s before the rank's last sign`."""
    hook = view.hook
    if hook is None:
        return ""
    if hook.in_flight:
        op = max(hook.in_flight, key=lambda op: op.start_ns)
        return f"{operation(op, hook)}, which it was in when it died"
    if not hook.recent:
        return ""
    op = max(hook.recent, key=lambda op: op.end_ns)
    return f"{operation(op, hook)}, which {'failed' if op.failed else 'had ended'}"


def reasons_of(view: RankView) -> tuple[str, ...]:
    """What else is known of a rank that died, for a person who must believe it."""
    evidence = view.death
    reasons = []
    if evidence is not None:
        about = (line for line in evidence.kernel_lines if _is_about(line, view.pid))
        reasons += [f"the kernel's log says: {shortened(line, _LONGEST_REASON)}" for line in about]
        if oom_killed(view) and evidence.oom_kills:
            times = "once" if evidence.oom_kills == 1 else f"{evidence.oom_kills} times"
            reasons.append(
                f"the kernel's OOM killer struck {times} in its memory cgroup {evidence.cgroup}"
            )
        elif view.exit_code == -signal.SIGKILL and evidence.oom_kills == 0 and not oom_killed(view):
            reasons.append(f"no OOM kill is counted in its memory cgroup {evidence.cgroup}")
    operation_words = last_operation(view)
    if operation_words:
        reasons.append(f"its last operation was {operation_words}")
    if evidence is not None and evidence.output:
        told = (PREFIX.sub("", line).strip() for line in evidence.output)
        # Not those that only underline the line above them, as tracebacks have.
        last = " / ".join([line for line in told if any(map(str.isalpha, line))][-_OUTPUT_LINES:])
        reasons.append(f"its last output: {shortened(printable(last), _LONGEST_REASON)}")
    if evidence is not None and evidence.core_stack:
        frames = "; ".join(evidence.core_stack[:_STACK_FRAMES])
        reasons.append(f"its core file says: {shortened(printable(frames), _LONGEST_REASON)}")
    return tuple(reasons)


def _is_about(line: str, pid: int) -> bool:
    return is_oom_kill(line, pid) or is_fault_of(line, pid)


def findings_of(views: Iterable[RankView]) -> list[Finding]:
    """What the hosts show beside the verdict.

    Args:
        views: ranks that died of themselves; of other ranks only hardware errors count.
    """
    findings = []
    for view in views:
        if view.death is None or not died(view):
            continue
        if oom_killed(view):
            findings.append(_oom(view))
        elif raised_before_abort(view):
            findings.append(_raised(view))
        elif is_crash(view.exit_code):
            findings.append(_crash(view))
    return findings


def hardware_findings(views: Iterable[RankView]) -> list[Finding]:
    """Errors of devices and memory that the kernels of the hosts have logged, once a host."""
    lines: dict[str, dict[str, None]] = {}
    for view in views:
        for line in view.death.kernel_lines if view.death else ():
            if is_hardware(line):
                lines.setdefault(view.host, {})[line] = None
    return [_hardware(host, tuple(texts)) for host, texts in sorted(lines.items())]


def outside_words(views: Iterable[RankView], number: int) -> str:
    """`ranks 0-3 got SIGTERM`."""
    ranks = RankSet.of(view.rank for view in views if view.exit_code == -number)
    return f"{of_ranks(ranks)} got {signal.Signals(number).name}"


def outside_finding(views: Sequence[RankView], number: int) -> Finding:
    """The job was ended by a signal to all of its ranks."""
    known = [view for view in views if not view.absent_reason]
    name = signal.Signals(number).name
    return Finding(
        id="RK-DEATH-004",
        status=Status.UNKNOWN,
        title=f"somebody ended the job: {outside_words(known, number)}",
        ranks=RankSet.of(view.rank for view in known).fold(),
        reasons=(f"no rank failed by itself: {name} ended each of them at the same time",),
        advice=OUTSIDE_ADVICE,
    )


def alike_words(views: Sequence[RankView]) -> str:
    """`all 4 ranks raised ValueError: bad batch at /job/train.py:88`; "" where they did not."""
    how = failed_alike(views)
    return f"all {len(views)} ranks {how}" if how else ""


def alike_finding(views: Sequence[RankView]) -> Finding:
    """All ranks have failed in the same way."""
    has_raised = all(map(raised, views))
    return Finding(
        id="RK-DEATH-006",
        status=Status.FAIL,
        title=alike_words(views),
        ranks=RankSet.of(view.rank for view in views).fold(),
        reasons=("no rank stands out",),
        advice=ALL_RAISED_ADVICE
        if has_raised
        else ALL_EXITED_ADVICE + _OF_EXIT_CODE.get(views[0].exit_code or 0, ""),
    )


def _where(view: RankView) -> str:
    return f"rank {view.rank}{where(view.host, view.pid)}"


def _oom(view: RankView) -> Finding:
    evidence = view.death
    assert evidence is not None
    cgroup = evidence.cgroup or next(
        (c for line in evidence.kernel_lines if (c := cgroup_of_oom_kill(line, view.pid))), ""
    )
    limit = evidence.memory_limit_bytes
    bound = f", whose limit is {size(limit)}" if limit else ""
    place = f"; it ran in the memory cgroup {printable(cgroup)}{bound}" if cgroup else ""
    measured = []
    if evidence.oom_kills is not None:
        measured.append(Evidence("OOM kills in its cgroup", evidence.oom_kills, how=cgroup))
    if evidence.memory_peak_bytes:
        peak, most = evidence.memory_peak_bytes, limit or None
        measured.append(Evidence("highest memory use of its cgroup", peak, "B", most, cgroup))
    return Finding(
        id="RK-DEATH-001",
        status=Status.FAIL,
        title=f"{_where(view)} was ended by the kernel's OOM killer{place}",
        ranks=str(view.rank),
        nodes=printable(view.host),
        reasons=tuple(
            shortened(line, _LONGEST_REASON)
            for line in evidence.kernel_lines
            if is_oom_kill(line, view.pid)
        ),
        evidence=tuple(measured),
        advice=OOM_ADVICE,
    )


def _crash(view: RankView) -> Finding:
    evidence = view.death
    assert evidence is not None
    own = [line for line in evidence.kernel_lines if is_fault_of(line, view.pid)]
    measured = [Evidence("core file", evidence.core)] if evidence.core else []
    return Finding(
        id="RK-DEATH-003",
        status=Status.FAIL,
        title=f"{_where(view)} crashed in native code: {exit_words(view.exit_code)}",
        ranks=str(view.rank),
        nodes=printable(view.host),
        reasons=tuple(shortened(line, _LONGEST_REASON) for line in (*own, *evidence.core_stack)),
        evidence=tuple(measured),
        advice=_crash_advice(view.exit_code, evidence),
    )


def _crash_advice(exit_code: int | None, evidence: DeathEvidence) -> str:
    advice = f"{CRASH_ADVICE} {NO_CORE_ADVICE}"
    if evidence.core:
        advice = f"`gdb {sys.executable} {evidence.core} -ex bt` shows its stack. {CRASH_ADVICE}"
    # Told first: where the script was at its end, nothing in the job is broken.
    if may_have_ended_in_shutdown(exit_code, evidence.output):
        advice = f"If its script had come to its end, {SHUTDOWN_ADVICE} If not: {advice}"
    return advice


def _raised(view: RankView) -> Finding:
    text = shortened(printable(raised_before_abort(view)), _LONGEST_REASON)
    return Finding(
        id="RK-DEATH-005",
        status=Status.FAIL,
        title=f"{_where(view)} raised {text}, and aborted while Python shut down",
        ranks=str(view.rank),
        nodes=printable(view.host),
        reasons=(
            "it left word of the exception before it aborted"
            if raised(view)
            else "its output says that a thread was ended in C++, right after the traceback",
        ),
        advice=f"{RAISED_ADVICE} To keep the exit code, catch the exception and {SHUTDOWN_ADVICE}",
    )


def _hardware(host: str, lines: tuple[str, ...]) -> Finding:
    errors = dict.fromkeys(xid for line in lines if (xid := xid_of(line)))
    words = [
        f"Xid {number} on {address}" + (f" ({meaning})" if (meaning := xid_meaning(number)) else "")
        for address, number in errors
    ]
    what = "; ".join(words[:_STACK_FRAMES]) or shortened(lines[-1], _LONGEST_REASON)
    return Finding(
        id="RK-DEATH-002",
        status=Status.WARN,
        title=f"the kernel of {printable(host)} has logged a hardware error: {what}",
        nodes=printable(host),
        reasons=tuple(shortened(line, _LONGEST_REASON) for line in lines),
        advice=HARDWARE_ADVICE,
    )
