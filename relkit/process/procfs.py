"""What /proc shows of a process and its threads, which may vanish at any time.

Whatever looks raises OSError where this process cannot look at any: it has no descriptor left.

Only files that the kernel can answer without the target's memory map are read (status, stat,
wchan, schedstat, io), because cmdline, environ, maps and smaps wait for a lock that a thread in
uninterruptible sleep may hold. The one exception, `read_within`, has a deadline.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO
from pathlib import Path

from relkit.process.shortage import is_shortage
from relkit.text.whole_number import whole_number

GONE = "gone"
# As relkit/launch/warm_standby/standby_process.py names itself.
_STANDBY = "relkit-standby"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# The first PID namespace's inode: PROC_PID_INIT_INO in include/linux/proc_ns.h.
FIRST_PID_NAMESPACE = 4026531836
# Field 9 of /proc/PID/stat, counted from the state on, which is field 3 (proc(5)), and a flag of
# include/linux/sched.h.
_FLAGS_FIELD, _PF_EXITING = 6, 0x4
_STOP_SIGNALS = 1 << (19 - 1) | 1 << (20 - 1) | 1 << (21 - 1) | 1 << (22 - 1)
_END_SIGNALS = sum(1 << (number - 1) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """One thread as /proc shows it.

    Args:
        os_thread_id: kernel thread id.
        comm: its name, at most 15 bytes.
        state: one letter (R, S, D, T, t, Z, X).
        wchan: kernel function it sleeps in; "" where it runs or the kernel will not say.
        cpu_s: CPU seconds used so far.
        switches: times it was switched out; a sleeping thread whose count did not change
            between two looks did not run in between.
        blocked: mask of blocked signals; caught: mask of handled ones (bit 0 = signal 1).
        stop_pending: a stop signal waits to be delivered.
    """

    os_thread_id: int
    comm: str
    state: str
    wchan: str = ""
    cpu_s: float = 0.0
    switches: int = 0
    blocked: int = 0
    caught: int = 0
    stop_pending: bool = False


def is_own() -> bool:
    """The numbers in /proc are those by which this process knows others.

    In a PID namespace that was made without mounting /proc again they are other processes'.
    """
    return _is_own(os.getpid())


@lru_cache(maxsize=1)
def _is_own(pid: int) -> bool:
    try:
        return os.readlink("/proc/self") == str(pid)  # noqa: PTH115
    except OSError:
        return False


def _folder(pid: int) -> str:
    """The folder of a process; one that does not exist where /proc shows others by that number."""
    return f"/proc/{pid}" if is_own() else "/proc/-"


def _text(path: Path | str) -> str:
    """The file's text, "" where the process (or the right to look) is gone.

    Raises:
        OSError: this process cannot look at any.
    """
    try:
        # Without Python's buffer and decoder, which take longer than the kernel.
        with FileIO(path) as stream:
            return stream.readall().decode("utf-8", "replace")
    except OSError as error:
        _raise_if_blind(error)
        return ""
    except ValueError:
        return ""


def _raise_if_blind(error: OSError) -> None:
    """Whoever has no descriptor left knows nothing: others are not gone for that."""
    if is_shortage(error):
        raise error


def _status_fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _mask(fields: dict[str, str], name: str) -> int:
    try:
        return int(fields.get(name, "0"), 16)
    except ValueError:
        return 0


def _switches(fields: dict[str, str]) -> int:
    names = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    return sum(_first_number(fields.get(name, "")) for name in names)


def _first_number(text: str) -> int:
    head = text.split(maxsplit=1)
    return int(head[0]) if head and head[0].isdigit() else 0


def thread(pid: int, os_thread_id: int) -> ThreadFacts | None:
    """One thread's facts; None where it is gone."""
    folder = Path(f"{_folder(pid)}/task/{os_thread_id}")
    fields = _status_fields(_text(folder / "status"))
    if not fields.get("State"):
        return None
    wchan = _text(folder / "wchan").strip()
    pending = _mask(fields, "SigPnd") | _mask(fields, "ShdPnd")
    return ThreadFacts(
        os_thread_id=os_thread_id,
        comm=fields.get("Name", ""),
        state=fields["State"][0],
        wchan="" if wchan == "0" else wchan,
        cpu_s=_first_number(_text(folder / "schedstat")) / 1e9,
        switches=_switches(fields),
        blocked=_mask(fields, "SigBlk"),
        caught=_mask(fields, "SigCgt"),
        stop_pending=bool(pending & _STOP_SIGNALS),
    )


def thread_ids(pid: int) -> tuple[int, ...]:
    """Ids of all threads in order of creation; empty where the process is gone."""
    try:
        names = [entry.name for entry in Path(f"{_folder(pid)}/task").iterdir()]
    except OSError as error:
        _raise_if_blind(error)
        return ()
    return tuple(sorted(int(name) for name in names if name.isdigit()))


def threads(pid: int) -> tuple[ThreadFacts, ...]:
    """All threads' facts; empty where the process is gone."""
    listed = (thread(pid, os_thread_id) for os_thread_id in thread_ids(pid))
    return tuple(facts for facts in listed if facts is not None)


def is_standby(pid: int) -> bool:
    """It waits to become a worker: a warm standby, which has a worker's command and environment."""
    return _status_fields(_text(f"{_folder(pid)}/status")).get("Name") == _STANDBY


def process_state(pid: int) -> str:
    """The main thread's state as /proc words it, e.g. "S (sleeping)"; "gone" for no process."""
    return _status_fields(_text(f"{_folder(pid)}/status")).get("State") or GONE


def is_ending(pid: int) -> bool:
    """It is ending or gone, or will end as soon as it runs: a signal that asks it to is pending."""
    fields = _status_fields(_text(f"{_folder(pid)}/status"))
    pending = (_mask(fields, "SigPnd") | _mask(fields, "ShdPnd")) & ~_mask(fields, "SigBlk")
    # A process that is stopped, or waits for a device, may never run again.
    may_run = fields.get("State", "")[:1] not in ("T", "t", "D")
    return bool(pending & _END_SIGNALS and may_run) or is_exiting(_text(f"{_folder(pid)}/stat"))


def is_exiting(stat: str) -> bool:
    """A process with this text in its /proc/PID/stat is ending; "" is one that is gone."""
    fields = _fields_of(stat)
    flags = whole_number(fields[_FLAGS_FIELD]) if len(fields) > _FLAGS_FIELD else None
    return flags is None or bool(flags & _PF_EXITING)


def _fields_of(stat: str) -> list[str]:
    """Fields of /proc/PID/stat from the state (field 3) on; the name may hold anything."""
    return stat.rpartition(")")[2].split()


def _stat_fields(pid: int) -> list[str]:
    return _fields_of(_text(f"{_folder(pid)}/stat"))


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process as /proc/PID/stat shows it.

    Args:
        state: one letter, as of its main thread; "" where it is gone.
        start_ticks: clock ticks since boot.
        cpu_s: CPU seconds of all its threads, ended ones included.
    """

    state: str = ""
    start_ticks: int = 0
    cpu_s: float = 0.0

    def runs(self, ticks: int) -> bool:
        """It is no zombie, and (where ticks is not 0) started at that time."""
        return self.state not in ("", "Z", "X") and ticks in (0, self.start_ticks)


def process(pid: int) -> ProcessFacts:
    """All of it with one look."""
    fields = _stat_fields(pid)
    if len(fields) < 20:
        return ProcessFacts()
    used = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return ProcessFacts(fields[0], int(fields[19]), used)


def has_kernels_pids() -> bool:
    """Processes have the numbers here that the kernel itself writes, which no container has."""
    return pid_namespace(os.getpid()) == FIRST_PID_NAMESPACE


def start_ticks(pid: int) -> int:
    """Start time in clock ticks since boot (field 22), to distinguish reused pids; 0 = gone."""
    fields = _stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def cpu_s(pid: int) -> float:
    """CPU seconds of the whole process, ended threads included; 0.0 where it is gone."""
    return process(pid).cpu_s


def cpu_wait_s(pid: int, os_thread_id: int | None = None) -> float:
    """Seconds for which a thread was ready to run and got no CPU; 0.0 where unknown.

    Args:
        os_thread_id: of the thread; None: the main one.
    """
    thread_id = pid if os_thread_id is None else os_thread_id
    words = _text(f"{_folder(pid)}/task/{thread_id}/schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 and words[1].isdecimal() else 0.0


def written_bytes(pid: int) -> int | None:
    """How much of files the process has written so far; None where that cannot be read."""
    written = _status_fields(_text(f"{_folder(pid)}/io")).get("write_bytes", "")
    return int(written) if written.isdecimal() else None


def is_same_process(pid: int, ticks: int) -> bool:
    """The process exists, is no zombie, and (where ticks is not 0) started at that time."""
    return process(pid).runs(ticks)


def all_pids() -> tuple[int, ...]:
    """All processes that can be seen here."""
    if not is_own():
        return ()
    try:
        return tuple(int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    except OSError:
        return ()


def pid_namespace(pid: int) -> int:
    """Inode of a process's PID namespace; 0 where it is gone, or the kernel will not say."""
    try:
        name = os.readlink(f"{_folder(pid)}/ns/pid")  # noqa: PTH115
    except OSError:
        # Somebody else's; with one number it is in the namespace of this /proc, which is ours.
        is_ours = pid != os.getpid() and len(_numbers(pid)) == 1
        return pid_namespace(os.getpid()) if is_ours else 0
    return whole_number(name.removeprefix("pid:[").removesuffix("]")) or 0


def has_own_clock(pid: int) -> bool:
    """The process is in another time namespace, so that its times are not this process's."""
    try:
        theirs = os.readlink(f"{_folder(pid)}/ns/time")  # noqa: PTH115
        return theirs != os.readlink("/proc/self/ns/time")  # noqa: PTH115
    except OSError:
        return False


def own_number(pid: int) -> int:
    """The number by which a process knows itself, in its own PID namespace; 0 where it is gone."""
    listed = _numbers(pid)
    return (whole_number(listed[-1]) or 0) if listed else 0


def _numbers(pid: int) -> list[str]:
    """Its numbers from the namespace of this /proc down to its own."""
    return _status_fields(_text(f"{_folder(pid)}/status")).get("NSpid", "").split()


def parent(pid: int) -> int:
    """The parent's pid; 0 where the process is gone."""
    fields = _stat_fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def identity(pid: int) -> tuple[int, int, int, int, str] | None:
    """Pid, its parent's, start in clock ticks since boot, user and name; None where it is gone."""
    fields = _stat_fields(pid)
    status = _status_fields(_text(f"{_folder(pid)}/status"))
    if len(fields) < 20 or not status.get("Uid"):
        return None
    name = status.get("Name", "")
    return pid, int(fields[1]), int(fields[19]), _first_number(status["Uid"]), name


def children(pid: int) -> tuple[int, ...]:
    """Pids of the direct children, whichever thread forked them."""
    pids: set[int] = set()
    for os_thread_id in thread_ids(pid):
        listed = _text(Path(f"{_folder(pid)}/task/{os_thread_id}/children"))
        pids.update(int(word) for word in listed.split())
    return tuple(sorted(pids))


def descendants(pid: int) -> tuple[int, ...]:
    """Pids of all children, their children and so on, nearest first."""
    pids: list[int] = []
    level = list(children(pid))
    while level:
        fresh = [child for child in level if child not in pids]
        pids += fresh
        level = [grandchild for child in fresh for grandchild in children(child)]
    return tuple(pids)


def read_within(path: str, timeout_s: float) -> bytes | None:
    """The bytes of a /proc file that may block; None where it cannot be read in time.

    environ and maps wait for as long as a thread of the target sits in the kernel with the
    memory map locked, so the read happens in a thread that is left behind at the deadline.

    Args:
        path: the file.
        timeout_s: how long to wait for the kernel, s.
    """
    result: list[bytes] = []

    def read() -> None:
        try:
            result.append(Path(path).read_bytes())
        except OSError:
            return

    reader = threading.Thread(target=read, name="relkit-proc-read", daemon=True)
    reader.start()
    reader.join(max(0.0, timeout_s))
    return result[0] if result else None


def rank_environment(pid: int, timeout_s: float = 0.5) -> dict[str, str]:
    """RANK, LOCAL_RANK and WORLD_SIZE from the environment that a process was started with.

    Args:
        pid: the process; must belong to the same user (else the result is empty).
        timeout_s: how long to wait for the kernel, s.
    """
    wanted = {b"RANK", b"LOCAL_RANK", b"WORLD_SIZE"}
    raw = read_within(f"{_folder(pid)}/environ", timeout_s) or b""
    pairs = (item.partition(b"=") for item in raw.split(b"\0"))
    return {
        name.decode(): value.decode("ascii", "replace")
        for name, _, value in pairs
        if name in wanted
    }


def moves(pid: int) -> dict[int, tuple[str, int]]:
    """Each thread's (state, switches): equal twice and not R = it did not run in between."""
    moved: dict[int, tuple[str, int]] = {}
    for os_thread_id in thread_ids(pid):
        fields = _status_fields(_text(Path(f"{_folder(pid)}/task/{os_thread_id}/status")))
        if fields.get("State"):
            moved[os_thread_id] = (fields["State"][0], _switches(fields))
    return moved


def tracer(pid: int) -> int:
    """Pid of the debugger attached to the process, 0 for none."""
    return _first_number(_status_fields(_text(f"{_folder(pid)}/status")).get("TracerPid", ""))
