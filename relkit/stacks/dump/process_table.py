"""Every process of this host, with what its environment says of a rank; any may vanish or lie."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from queue import Empty, SimpleQueue

from relkit.process import procfs
from relkit.process.interruptible_wait import next_of
from relkit.stacks.dump.rank_claim import VARIABLES

DENIED, LATE = "denied", "late"

# An environment may have megabytes; names beyond this are no launcher's.
_MOST_BYTES = 8 << 20
_LONGEST_VALUE = 256
_MOST_WORDS, _MOST_WORD_BYTES = 4096, 1 << 17
# Readers at first, and more of them while those wait for the kernel.
_READERS, _MOST_READERS = 8, 512
_PATIENCE_S = 0.2
_PYTHON = re.compile(r"python|pypy")


@dataclass(frozen=True, slots=True)
class Seen:
    """One process.

    Args:
        pid, parent: process ids on this host.
        start_ticks: start time as /proc has it.
        uid: the user it runs as.
        comm: its name, as it calls itself.
        program: base name of its executable; "" where that is not known. As all that follows, it
            is looked at only where there is something in `environ`.
        is_python: a Python interpreter runs in it.
        words: its command line.
        environ: those of VARIABLES that it was started with.
        network: names its network namespace.
        problem: "", or why its environment is not known: DENIED, LATE.
    """

    pid: int
    parent: int
    start_ticks: int
    uid: int
    comm: str
    program: str = ""
    is_python: bool = False
    words: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    network: str = ""
    problem: str = ""


def rank_variables(raw: bytes) -> dict[str, str]:
    """Those of VARIABLES that a process was started with, from its environment's bytes.

    Of a name that is there twice the first counts, as it does for the process itself.
    """
    variables: dict[str, str] = {}
    for item in raw.split(b"\0"):
        name, is_variable, value = item.partition(b"=")
        if is_variable and len(value) <= _LONGEST_VALUE and len(name) < 64:
            decoded = name.decode("ascii", "replace")
            if decoded in VARIABLES:
                variables.setdefault(decoded, value.decode("utf-8", "replace"))
    return variables


def look(timeout_s: float) -> tuple[Seen, ...]:
    """All processes of this host, by pid.

    Args:
        timeout_s: for all of them together, s. What could not be read by then is LATE: the kernel
            keeps a reader waiting while a thread of the process sleeps with its memory map locked.
    """
    deadline = time.monotonic() + timeout_s
    seen = {head.pid: head for head in map(_head, _pids()) if head is not None}
    waiting: SimpleQueue[Seen] = SimpleQueue()
    finished: SimpleQueue[tuple[int, Seen | None]] = SimpleQueue()
    for head in seen.values():
        waiting.put(head)
    readers, left = 0, len(seen)
    is_stuck = True
    while left and (remaining_s := deadline - time.monotonic()) > 0:
        if is_stuck and readers < _MOST_READERS and not waiting.empty():
            _start_readers(waiting, finished)
            readers += _READERS
        try:
            pid, whole = next_of(finished, min(_PATIENCE_S, remaining_s))
        except Empty:
            is_stuck = True
            continue
        is_stuck = False
        left -= 1
        if whole is None:
            del seen[pid]
        else:
            seen[pid] = whole
    return tuple(seen[pid] for pid in sorted(seen))


def _start_readers(
    waiting: SimpleQueue[Seen], finished: SimpleQueue[tuple[int, Seen | None]]
) -> None:
    def serve() -> None:
        while True:
            try:
                head = waiting.get_nowait()
            except Empty:
                return
            whole = None
            try:
                whole = _whole(head)
            finally:
                finished.put((head.pid, whole))

    for _ in range(_READERS):
        # Left behind where the kernel does not answer; the command ends without them.
        threading.Thread(target=serve, name="relkit-process-table", daemon=True).start()


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def _head(pid: int) -> Seen | None:
    """What the kernel says without the process's memory map; None for one that has ended."""
    status = procfs.identity(pid)
    if status is None:
        return None
    return Seen(*status, problem=LATE)


def _whole(head: Seen) -> Seen | None:
    """The same with its environment; None where it has ended, or its pid is another's by now."""
    folder = f"/proc/{head.pid}"
    try:
        environ = rank_variables(_bytes(f"{folder}/environ", _MOST_BYTES))
        if not environ:
            return replace(head, problem="") if _is_still(head) else None
        program = Path(os.readlink(f"{folder}/exe")).name.removesuffix(" (deleted)")  # noqa: PTH115
        network = os.readlink(f"{folder}/ns/net")  # noqa: PTH115
        words = _bytes(f"{folder}/cmdline", _MOST_WORD_BYTES).split(b"\0")[:_MOST_WORDS]
        is_python = _PYTHON.match(program) is not None or (
            b"/libpython" in _bytes(f"{folder}/maps", _MOST_BYTES)
        )
    except OSError as error:
        # A zombie has no executable, and a kernel's thread no environment.
        is_denied = error.errno in (errno.EACCES, errno.EPERM)
        return replace(head, problem=DENIED if is_denied else "") if _is_still(head) else None
    if not _is_still(head):
        return None
    return replace(
        head,
        program=program,
        is_python=is_python,
        words=tuple(os.fsdecode(word) for word in words if word),
        environ=environ,
        network=network,
        problem="",
    )


def _is_still(head: Seen) -> bool:
    return procfs.is_same_process(head.pid, head.start_ticks)


def _bytes(path: str, limit_bytes: int) -> bytes:
    parts, room_bytes = [], limit_bytes
    with FileIO(path) as stream:
        while room_bytes > 0 and (part := stream.read(min(room_bytes, 1 << 16))):
            parts.append(part)
            room_bytes -= len(part)
    return b"".join(parts)
