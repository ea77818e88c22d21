"""What /proc says of a process's threads before one of them is asked for its stack."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ThreadStatus:
    """One thread, as /proc/PID/task/TID/status shows it.

    Args:
        os_thread_id: kernel thread id; own_id: the one by which it knows itself, another one in a
            PID namespace of its own; name: its comm; state: one letter.
        blocked, caught: bit n-1 stands for signal n.
    """

    os_thread_id: int
    name: str
    state: str
    blocked: int
    caught: int
    own_id: int = 0

    def handles(self, signal_number: int) -> bool:
        """The process has a handler for it: it will not die of it."""
        return bool(self.caught >> (signal_number - 1) & 1)

    def blocks(self, signal_number: int) -> bool:
        """The thread would not see it before it unblocks it."""
        return bool(self.blocked >> (signal_number - 1) & 1)


def thread_statuses(pid: int) -> list[ThreadStatus]:
    """All threads of a process; those that end meanwhile are left out.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        tids = sorted(int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir())
    except OSError as error:
        raise ProcessLookupError(3, f"process {pid} is gone") from error
    statuses = []
    for tid in tids:
        status = thread_status(pid, tid)
        if status is not None:
            statuses.append(status)
    return statuses


def thread_status(pid: int, tid: int) -> ThreadStatus | None:
    """One thread, or None where it has ended."""
    try:
        text = Path(f"/proc/{pid}/task/{tid}/status").read_text(errors="replace")
    except OSError:
        return None
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    try:
        return ThreadStatus(
            os_thread_id=tid,
            name=fields["Name"].strip(),
            state=fields["State"].strip()[:1],
            blocked=int(fields["SigBlk"], 16),
            caught=int(fields["SigCgt"], 16),
            own_id=int(fields.get("NSpid", str(tid)).split()[-1]),
        )
    except (LookupError, ValueError):
        return None


def run_time_ns(pid: int, tid: int) -> int | None:
    """How long a thread has had a core, ns; None where the kernel does not say."""
    try:
        return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
