"""What to do next about each kind of fault, and the id under which it is reported."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from relkit.hang.model import Category


@dataclass(frozen=True, slots=True)
class Entry:
    """How a category is reported.

    Args:
        id: the finding's id.
        advice: what a person does next.
    """

    id: str
    advice: str


ENTRIES = {
    Category.ABSENT: Entry(
        "RK-HANG-001",
        "Check that the host answers (ssh, its console, the scheduler's view of the node). If it "
        "does not, drain it and restart the job without it.",
    ),
    Category.DEAD: Entry(
        "RK-HANG-002",
        "Read the end of that rank's own log and the host's kernel log for the same minute.",
    ),
    Category.STOPPED: Entry(
        "RK-HANG-003",
        "Find out who stopped it (a debugger, a person, a scheduler that suspends). "
        "`kill -CONT PID` on that host resumes it, and the job with it.",
    ),
    Category.UNINTERRUPTIBLE: Entry(
        "RK-HANG-004",
        "Look at the file system or device that it waits for (dmesg, mount, /proc/PID/stack as "
        "root). The process cannot be killed until that kernel call returns: drain the host if "
        "it does not.",
    ),
    Category.MISMATCH: Entry(
        "RK-HANG-005",
        "A bug in the training script: on that rank the code takes a different branch than on "
        "the others, or passes a tensor of a different shape. Compare its stack with theirs in the "
        "mixed view; look for conditions on rank, loss or data around a collective.",
    ),
    Category.SKIPPED: Entry(
        "RK-HANG-006",
        "A bug in the training script: on that rank a collective is not reached. Look for an "
        "early return, a `continue`, a caught exception or an empty batch ahead of the call.",
    ),
    Category.SKIPPED_TRANSFER: Entry(
        "RK-HANG-013",
        "A bug in the training script: on that rank a send or receive is not reached. Look for a "
        "condition on the stage or micro-batch ahead of the call, and compare the schedules of "
        "the two stages.",
    ),
    Category.SWAPPED_TRANSFERS: Entry(
        "RK-HANG-014",
        "A bug in the training script: the two stages make their sends and receives in orders "
        "that do not fit. Make one of them send first, or put both into one batch_isend_irecv.",
    ),
    Category.UNEQUAL_TRANSFER: Entry(
        "RK-HANG-015",
        "A bug in the training script: sender and receiver pass tensors of different shape or "
        "type. Look at the last micro-batch, at sequence lengths and at dtypes on both stages.",
    ),
    Category.GIL_HELD: Entry(
        "RK-HANG-016",
        "An extension (or a call by ctypes.PyDLL) waits without releasing Python's interpreter "
        "lock, so that no other Python thread of the process runs: look at what it waits for in "
        "the frame named. Where another thread has to end that wait, it is a deadlock, and the "
        "extension must release the lock (Py_BEGIN_ALLOW_THREADS, ctypes.CDLL).",
    ),
    Category.SPINNING: Entry(
        "RK-HANG-007",
        "It computes endlessly, or far longer than the others: look at the loop in the frame "
        "named. If that phase is supposed to take this long, raise --hang-timeout.",
    ),
    Category.BLOCKED: Entry(
        "RK-HANG-008",
        "Look at what it waits for in the frame named: a lock that another of its threads holds, "
        "a data-loader worker, a file or a socket. Its other threads are in its .stacktrace "
        "file. If it is the file system, check the host's mounts.",
    ),
    Category.DEVICE: Entry(
        "RK-HANG-012",
        "Find out which kernel the device is running (with the vendor's debugger, or by timing "
        "all launches), and look for errors of the device in the host's kernel log.",
    ),
    Category.LEFT: Entry(
        "RK-HANG-009",
        "That rank has done fewer steps than the others: look at the length of its data shard "
        "and at its conditions for leaving the loop.",
    ),
    Category.SLOW_EXIT: Entry(
        "RK-HANG-027",
        "No rank waits for it. Its other threads, which are in its .stacktrace file, show what it "
        "waits for itself: a thread that is not a daemon, an upload, a process group that was not "
        "destroyed. It is given time while it uses a CPU; --on-hang is carried out once it has "
        "used none for another timeout.",
    ),
    Category.INCONCLUSIVE: Entry(
        "RK-HANG-010",
        "Read the merged stacks: the ranks that differ from the rest come first. For a clearer "
        "verdict, make sure that the hook is loaded on every rank (`relkit doctor`), and check "
        "the network between the hosts.",
    ),
}

NO_STACK = Entry(
    "RK-HANG-011",
    "The verdict was reached without these stacks. `relkit doctor` on that host shows why they "
    "cannot be read there.",
)


# Where there are only the files that a job left.
_WITHOUT_STACKS = {
    Category.ABSENT: "Find its file, and judge them again. If it wrote none: a rank that was "
    "ending itself, or whose host was gone, leaves none. Read that rank's log.",
    Category.BLOCKED: "What it did after its last operation was not recorded: read that rank's "
    "log. To see its stack the next time, run the job under `relkit launch`, or run `relkit stacks "
    "dump` while it hangs.",
    Category.INCONCLUSIVE: "Capture the stacks of all ranks while it hangs (`relkit stacks dump`, "
    "or run the job under `relkit launch`), and check the network between the hosts "
    "(`relkit netcheck`).",
}


def advice_for(
    category: Category,
    exit_code: int | None = None,
    pid: int = 0,
    *,
    has_stacks: bool = True,
    others_follow: bool = False,
) -> str:
    """What to do next.

    Args:
        category: the fault.
        exit_code: of a dead rank, negative for a signal; None where it is not known.
        pid: the process, for commands that name it; 0 where it is not known.
        has_stacks: False where no stack was asked for.
        others_follow: all other ranks that died did so because of this one.
    """
    text = ENTRIES[category].advice
    if not has_stacks:
        text = _WITHOUT_STACKS.get(category, text)
    if category is Category.DEAD and exit_code is not None:
        text = _AFTER_DEATH.get(exit_code, _AFTER_SIGNAL if exit_code < 0 else _AFTER_ERROR)
        text += _CONSEQUENCES if exit_code > 0 and others_follow else ""
    return text.replace("PID", str(pid)) if pid else text


_AFTER_ERROR = (
    "Read the traceback at the end of that rank's own log: the script failed there by itself."
)
_CONSEQUENCES = " The errors of the other ranks are consequences."
_AFTER_SIGNAL = (
    "Look at the host's kernel log for the same minute (dmesg: Xid, machine check). If there is "
    "nothing, suspect a bug in native code: enable core files (ulimit -c unlimited), run again."
)
_AFTER_DEATH = {
    -signal.SIGKILL: (
        "Look for the out-of-memory killer (dmesg, the memory limit of its cgroup), then for "
        "anything else that may have killed it: a scheduler's limit, a person."
    ),
    -signal.SIGTERM: (
        "Something asked it to end: look at the scheduler (time limit, preemption), and whether "
        "that host was shut down."
    ),
}
