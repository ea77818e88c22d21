"""What to do about each category at three in the morning, and the first two commands to type."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from relkit.hang.model import Category, Culprit

_PID = re.compile(r"\bPID\b")
_GONE = "Its process is gone: what it did is in its stacks."
_SAFE_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about one category.

    Args:
        text: what to look for, and what to do about it.
        commands: to type first. HOST and PID are filled in; STACKS and FACTS become a command that
            shows them.
        text_when_gone: instead of `text` where the process has ended; "": `text` holds then, too.
    """

    text: str
    commands: tuple[str, ...]
    text_when_gone: str = ""


RUNBOOK = {
    Category.ABSENT: Advice(
        "Nothing has come from this rank's host. If it does not answer, drain it and start the "
        "job again without it. If it answers, its launcher was ended: the kernel log says whether "
        "memory ran out.",
        ("ping -c 3 HOST", "ssh HOST 'uptime; dmesg -T | tail -n 50'"),
    ),
    Category.DEAD: Advice(
        "Start with how this rank ended; what the other ranks print is a consequence. After a "
        "traceback mend the script. After SIGKILL look for the out-of-memory killer, and give the "
        "job more memory or let it use less. After SIGSEGV or SIGABRT look for errors of a "
        "device, then at the core file.",
        ("ssh HOST 'dmesg -T | tail -n 100'", "ssh HOST 'df -h; free -g; uptime'"),
    ),
    Category.STOPPED: Advice(
        "Nothing is lost yet. Look at who stopped it: TracerPid is a debugger's process id, 0 "
        "means that a signal did it (a person, a scheduler that suspends). Let it go on, and the "
        "job goes on with it.",
        ("ssh HOST 'grep -E \"State|TracerPid\" /proc/PID/status'", "ssh HOST 'kill -CONT PID'"),
        "It was stopped by a signal or a debugger. Look at who did that: a person, a scheduler "
        "that suspends.",
    ),
    Category.UNINTERRUPTIBLE: Advice(
        "It waits inside the kernel, and no signal ends that. The kernel's stack says whether a "
        "file system or a device is the reason. If df hangs as well, the mount is gone: mend it, "
        "or drain the host and restart it.",
        ("ssh HOST 'sudo cat /proc/PID/stack; dmesg -T | tail'", "ssh HOST 'timeout 10 df -h'"),
        "It waited inside the kernel, and no signal ends that. If df hangs, the mount is gone: "
        "mend it, or drain the host and restart it. Else the kernel's log may name the device.",
    ),
    Category.MISMATCH: Advice(
        "The script is wrong, not the machine: starting it again will hang at the same place. In "
        "the table of collectives, look at the first number at which this rank differs. Then look "
        "above the line named here for a condition on rank, loss or data, or for a tensor whose "
        "shape depends on them, and make it the same on all ranks.",
        ("STACKS", "git log -5 --stat"),
    ),
    Category.SKIPPED: Advice(
        "The script is wrong, not the machine: starting it again will hang at the same place. "
        "Above the line named here, look for an early return, a `continue`, a caught exception or "
        "an empty batch, and see to it that every rank reaches the call.",
        ("STACKS", "git log -5 --stat"),
    ),
    Category.SKIPPED_TRANSFER: Advice(
        "The script is wrong, not the machine. The table of sends and receives shows which half "
        "is missing. Compare the schedules of the two stages at that micro-batch, and look for a "
        "condition on the stage or the batch above the call.",
        ("STACKS", "git log -5 --stat"),
    ),
    Category.SWAPPED_TRANSFERS: Advice(
        "The script is wrong, not the machine. Two ranks both send, or both receive. Let one of "
        "the two make the other half first, or put both into one `batch_isend_irecv`.",
        ("STACKS", "git log -5 --stat"),
    ),
    Category.UNEQUAL_TRANSFER: Advice(
        "The two ends do not agree on the size. Look at shape and type of that tensor on both "
        "stages: the last micro-batch, and sequences whose length varies, are where they differ.",
        ("STACKS", "git log -5 --stat"),
    ),
    Category.GIL_HELD: Advice(
        "Native code waits with Python's interpreter lock held, so that no other Python thread of "
        "this process runs: no loader, no logger, no timeout. Look at what the thread that has "
        "the lock waits for. If another thread has to end that wait, it never will: have the "
        "extension release the lock around the call (ctypes.CDLL does, ctypes.PyDLL does not).",
        (
            "ssh HOST 'py-spy dump --native --pid PID'",
            "ssh HOST 'ps -L -o tid,stat,wchan:30,comm -p PID'",
        ),
    ),
    Category.SPINNING: Advice(
        "It computes while the others wait. Look at its stack twice: if the lines change it is "
        "slow and not stuck, and `--hang-timeout` is too short for this phase. If they stay, the "
        "loop at the line named here does not end.",
        ("ssh HOST 'py-spy dump --nonblocking --pid PID'", "ssh HOST 'top -b -n 1 -H -p PID'"),
        "It computed while the others waited: the loop at the line named here did not end, or it "
        "was slow, and `--hang-timeout` is too short for this phase.",
    ),
    Category.BLOCKED: Advice(
        "The ranks that wait are healthy; this one waits on its own host. Look at all its "
        "threads: one of them often has the lock. If it waits for a data loader, look at the "
        "loader's processes; if for a file, at the mount.",
        (
            "ssh HOST 'py-spy dump --nonblocking --pid PID'",
            "ssh HOST 'ps -L -o tid,stat,wchan:30,comm -p PID; timeout 10 df -h'",
        ),
    ),
    Category.DEVICE: Advice(
        "The host has done its part; the device does not get to the collective. An Xid or an ECC "
        "error in the kernel log means: drain the host. With none, a kernel ahead of the "
        "collective does not end, and the vendor's debugger names it.",
        ("ssh HOST 'dmesg -T | grep -iE \"xid|nvrm|ecc|amdgpu\" | tail'", "ssh HOST nvidia-smi"),
    ),
    Category.LEFT: Advice(
        "It is done, and the others are not: it had fewer steps. Compare the lengths of the data "
        "shards (`drop_last`, uneven samplers) and the conditions under which the loop ends, and "
        "let all ranks do the same number of steps.",
        ("FACTS", "git log -5 --stat"),
    ),
    Category.SLOW_EXIT: Advice(
        "Its script has ended, so a restart would only repeat work. The stacks show which of its "
        "threads the interpreter waits for: end that thread, make it a daemon, or call "
        "destroy_process_group() before the script ends. If it uploads or frees memory, let it.",
        ("STACKS", "ssh HOST 'grep -E \"State|Threads\" /proc/PID/status; cat /proc/PID/io'"),
    ),
    Category.INCONCLUSIVE: Advice(
        "Nobody is late by what was recorded. Where all ranks are in the same collective, check "
        "the network between these hosts first. Where ranks wait for one another, look at those "
        "that stand apart in the stacks. If some ranks have no recorder, find out why.",
        ("relkit netcheck -w HOSTS", "relkit doctor"),
    ),
}


@dataclass(frozen=True, slots=True)
class HangFiles:
    """What a hang left, for the commands to type.

    Args:
        folder: where it is.
        has_report: report.json is there; has_dumps: .stacktrace files are; has_stacks: py_stack is.
    """

    folder: str = ""
    has_report: bool = False
    has_dumps: bool = False
    has_stacks: bool = False

    def stacks(self) -> str:
        """Shows where each rank stands."""
        if self.has_stacks:
            return f"less {shlex.quote(self.folder)}/py_stack"
        return f"relkit stacks merge {shlex.quote(self.folder)}" if self.has_dumps else self.facts()

    def facts(self) -> str:
        """Shows how far each rank has come."""
        folder = shlex.quote(self.folder)
        if self.has_report:
            return f"less {folder}/report.json"
        return f"relkit {'report --json' if self.has_dumps else 'hang analyze'} {folder}"


def commands_for(
    category: Category, host: str, pid: int, files: HangFiles, *, is_gone: bool = False
) -> tuple[str, ...]:
    """What to type first.

    Args:
        category: of the fault.
        host, pid: where the rank ran; a host that is not known is left for the reader to fill in.
            Names come from the job: one that is no host name is not put into a command.
        files: of the hang.
        is_gone: the rank's process has ended, so that nothing can be asked of it.
    """
    asked = RUNBOOK[category].commands
    if is_gone or pid <= 0:
        asked = tuple(each for each in asked if not _PID.search(each))
        asked = asked if len(asked) == len(RUNBOOK[category].commands) else ("STACKS", *asked)
    filled = {
        "HOST": host if _SAFE_HOST.fullmatch(host) else "HOST",
        "PID": str(pid),
        "STACKS": files.stacks(),
        "FACTS": files.facts(),
    }
    made = (
        re.sub(r"\b(HOST|PID|STACKS|FACTS)\b", lambda match: filled[match[0]], command)
        for command in dict.fromkeys(asked)
    )
    return tuple(made)


def advice_on(
    culprit: Culprit, files: HangFiles, *, is_gone: bool = False
) -> tuple[str, tuple[str, ...]]:
    """The paragraph and the commands for one rank at fault.

    Args:
        culprit: the rank; files: of the hang.
        is_gone: its process has ended.
    """
    entry = RUNBOOK[culprit.category]
    commands = commands_for(culprit.category, culprit.host, culprit.pid, files, is_gone=is_gone)
    text = entry.text
    if is_gone and any(map(_PID.search, entry.commands)):
        text = f"{entry.text_when_gone or text} {_GONE}"
    if not culprit.host and any("HOST" in command for command in commands):
        text += f" These files do not say where rank {culprit.rank} ran: the scheduler does."
    return text, commands
