"""What `py-spy dump` prints -> the stacks of a process; pure.

Source: py-spy's src/dump.rs, 0.1 to 0.4: with and without --native, --locals, --full-filenames and
--subprocesses.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from relkit.hang.infrastructure import is_infrastructure
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from relkit.stacks.roles import role_of_frames, role_of_name

MAX_PROCESSES = 4096
MAX_THREADS = 4096
MAX_FRAMES = 2048
_MAX_LINE = 4096

_PROCESS = re.compile(r"Process (\d{1,9}): ?(.*)", re.ASCII)
_PYTHON = re.compile(r"Python v(\d{1,2}\.\d{1,3})", re.ASCII)
_THREAD = re.compile(
    r"Thread (0x[0-9A-Fa-f]{1,16}|\d{1,10})(?:/0x[0-9A-Fa-f]{1,16})? "
    r"\((active|idle)(\+gil)?\)(?:: \"(.*)\")?\s*$",
    re.ASCII,
)
# A function's name may hold blanks and brackets; the place is the last pair of brackets.
_FRAME = re.compile(r" {4}(?! )(.{1,2048}?) \(([^()]{1,1024})\)\s*$")
_BARE = re.compile(r" {4}(?! )([^\s()]{1,2048})\s*$")
# A library, a source, or a program such as `python3.10`, with neither a line nor Python's suffix.
_NATIVE = re.compile(
    r"\.so(\.[\w.]+)?$|\.(c|cc|cpp|cxx|cu|h|hpp)(:\d+)?$|^\?$|\.rs(:\d+)?$|"
    r"^(?!.*\.py[xi]?$)[^<:]+$"
)
# `[rank3]`, `rank 3:`, `== rank 3 ==`: whose stack comes next, or begins in this line.
_RANK_MARK = re.compile(r"^\W*rank[ _=:#-]{0,2}(\d{1,7})\W*$", re.ASCII | re.IGNORECASE)
_RANK_PREFIX = re.compile(r"^\s*\[rank(\d{1,7})\]:? ?", re.ASCII)
# Frames in main threads of processes that are no ranks: loaders, pools, trackers, launchers.
_HELPER = re.compile(
    r"_worker_loop torch/utils/data/_utils/worker\.py|worker multiprocessing/pool\.py|"
    r"_process_worker concurrent/futures/process\.py|(serve_forever|_run_server) "
    r"multiprocessing/managers\.py|main multiprocessing/(resource|semaphore)_tracker\.py|"
    r"(join|spawn|start_processes) torch/multiprocessing/spawn\.py|"
    r"\w+ torch/distributed/(run|launch|launcher/api|elastic/agent/server/\w+)\.py|"
    r"\w+ torch/_inductor/compile_worker/"
)
_LIBRARY = re.compile(r"^.*/(?:site-packages|python3[.\d]*)/")


@dataclass(frozen=True, slots=True)
class SpyProcess:
    """One process of a text.

    Args:
        pid: of it.
        rank: that the text itself names, None where it does not.
        threads: Python stacks; native: what --native adds, one a thread.
        engine: what printed them.
    """

    pid: int
    rank: int | None
    threads: tuple[ThreadStack, ...]
    native: tuple[ThreadStack, ...]
    engine: str = "py-spy"

    @property
    def is_helper(self) -> bool:
        """It serves a rank or starts ranks, and is none: a loader of data, a launcher."""
        main = next((thread for thread in self.threads if thread.role is Role.MAIN), None)
        frames = main.frames if main else ()
        return any(
            _HELPER.match(f"{f.func.rpartition('.')[2]} {_LIBRARY.sub('', f.source)}")
            for f in frames
        )

    def dump(self, rank: int) -> RankDump:
        """The same as the stacks of a rank."""
        return RankDump(
            rank=rank,
            world_size=0,
            pid=self.pid,
            process_state="",
            native=self.native,
            python=self.threads,
            engines=(self.engine,),
        )


@dataclass(slots=True)
class _Thread:
    number: str
    name: str
    active: bool
    owns_gil: bool
    python: list[Frame] = field(default_factory=list)
    native: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class _Process:
    pid: int
    rank: int | None
    version: str = ""
    threads: list[_Thread] = field(default_factory=list)


def rank_mark(line: str) -> tuple[int | None, str]:
    """The rank that a line names ahead of a stack, or before each of its lines, and what is left.

    Args:
        line: of a text with stacks.
    """
    if (prefix := _RANK_PREFIX.match(line)) is not None:
        return int(prefix[1]), line[prefix.end() :]
    if (mark := _RANK_MARK.match(line)) is not None:
        return int(mark[1]), ""
    return None, line


def parse_spy_text(lines: Iterable[str]) -> list[SpyProcess]:
    """The processes of a text, in its order; empty where it is not py-spy's.

    Args:
        lines: of the text.
    """
    processes: list[_Process] = []
    # Lines with a mark of their own may be mixed: each goes on with its rank's process.
    marked: dict[int, _Process] = {}
    rank: int | None = None
    for text in lines:
        line = text[:_MAX_LINE].rstrip("\r\n")
        prefix = _RANK_PREFIX.match(line)
        mark = _RANK_MARK.match(line)
        if prefix is not None:
            rank, line = int(prefix[1]), line[prefix.end() :]
        elif mark is not None:
            rank = int(mark[1])
            continue
        process = _PROCESS.match(line)
        if process is not None:
            if len(processes) == MAX_PROCESSES:
                break
            processes.append(_Process(int(process[1]), rank))
            if prefix is None:
                rank = None
            elif rank is not None:
                marked[rank] = processes[-1]
        elif prefix is not None and int(prefix[1]) in marked:
            _add(marked[int(prefix[1])], line)
        elif processes:
            _add(processes[-1], line)
    return [_finished(process) for process in processes if process.threads]


def _add(process: _Process, line: str) -> None:
    thread = _THREAD.match(line)
    if thread is not None:
        if len(process.threads) < MAX_THREADS:
            name, active = thread[4] or "", thread[2] == "active"
            process.threads.append(_Thread(thread[1], name, active, thread[3] is not None))
        return
    version = _PYTHON.match(line)
    if version is not None:
        process.version = process.version or version[1]
        return
    if not process.threads:
        return
    current = process.threads[-1]
    frame = _FRAME.match(line) or _BARE.match(line)
    if frame is None or len(current.python) + len(current.native) >= MAX_FRAMES:
        return
    where = frame[2] if frame.re is _FRAME else ""
    if frame.re is _BARE or _NATIVE.search(where):
        current.native.append(Frame(frame[1], where))
    else:
        current.python.append(Frame(frame[1], _whole_path(where, process.version)))


def _whole_path(where: str, version: str) -> str:
    """py-spy shortens paths to what comes below sys.path; the rules for stacks know long ones."""
    if where.startswith(("/", "<", ".")):
        return where
    first = where.partition("/")[0].partition(":")[0].removesuffix(".py")
    if first in sys.stdlib_module_names and first != "__main__":
        return f"/lib/python{version or '3'}/{where}"
    installed = f"/site-packages/{where}"
    return installed if "/" in where and is_infrastructure(installed) else where


def _finished(process: _Process) -> SpyProcess:
    threads, native = [], []
    for each in process.threads:
        number = int(each.number, 16) if each.number.startswith("0x") else int(each.number)
        # Old versions print Python's own id of a thread, and not the kernel's.
        os_thread_id = 0 if each.number.startswith("0x") else number
        is_main = each.name == "MainThread" or os_thread_id == process.pid
        frames = tuple(each.python)
        role = Role.MAIN if is_main else role_of_name(each.name) or role_of_frames(frames)
        state = "R" if each.active else "S"
        name = each.name or ("MainThread" if is_main else "")
        threads.append(
            ThreadStack(os_thread_id, name, frames, role, state, number, each.active, each.owns_gil)
        )
        if each.native:
            native.append(ThreadStack(os_thread_id, name, tuple(each.native), role, state))
    if not any(thread.role is Role.MAIN for thread in threads):
        # Without names, as in 0.1: the process's first thread is printed last.
        threads[-1] = replace(threads[-1], role=Role.MAIN)
    return SpyProcess(process.pid, process.rank, tuple(threads), tuple(native))
