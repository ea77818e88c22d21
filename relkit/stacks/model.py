"""What a captured rank looks like: frames, threads, one dump a rank."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Role(str, Enum):
    """What a thread is for, as far as its name and stack tell."""

    MAIN = "main"
    AUTOGRAD = "autograd"
    COMMUNICATION = "communication"
    LOADER = "loader"
    COMPUTE = "compute"
    WATCHDOG = "watchdog"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame.

    Args:
        func: function name; demangled; "??" only where not even the module is known, else
            "module+0xoffset" for an unresolved native frame.
        source: "path:line" for Python, source or shared-object path for native code.
        module: Python module, "" otherwise.
        build_id: hex GNU build id of the native object, "" otherwise.
        offset: offset of the frame in the native object (its link-time address), else 0.
        entry: C code entered the interpreter for this Python frame; False where its caller's
            evaluation runs it too, as CPython 3.11 and later do for a call from Python.
    """

    func: str
    source: str
    module: str = ""
    build_id: str = ""
    offset: int = 0
    entry: bool = True


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread's stack, native or Python.

    Args:
        os_thread_id: the kernel's thread id (LWP); 0 where the engine could not tell.
        name: thread name (comm for native threads, Python's own name for Python threads).
        frames: innermost first, as every debugger prints them.
        role: what the thread is for.
        state: one letter of /proc (R, S, D, T, Z...), "" where unknown.
        thread_id: Python's thread ident (pthread_t); 0 for native stacks.
        active: py-spy thinks that the thread is running (Python only).
        owns_gil: holds the interpreter lock (Python only).
        kernel: where the thread sleeps in the kernel (/proc wchan), "" where unknown.
    """

    os_thread_id: int
    name: str
    frames: tuple[Frame, ...]
    role: Role = Role.OTHER
    state: str = ""
    thread_id: int = 0
    active: bool = False
    owns_gil: bool = False
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class RankDump:
    """All that one rank's .stacktrace file holds.

    Args:
        rank: global rank; world_size: number of ranks (0 where a foreign file does not say).
        pid: process id on `host`.
        process_state: as /proc/PID/status says it, e.g. "S (sleeping)"; "" where unknown.
        native: native stacks, one a thread.
        python: Python stacks, one a Python thread.
        host: host name, "" in files of the original tool.
        job_id: id of the run, "" in files of the original tool.
        captured_unix_ns: when, ns since 1970; 0 in files of the original tool.
        engines: which engines supplied the stacks, e.g. ("hook", "py-spy").
        notes: what could not be read and why; shown with the rank.
        hook_json: relkit's own recorder facts at capture time (HookState.to_json), "" if none.
    """

    rank: int
    world_size: int
    pid: int
    process_state: str
    native: tuple[ThreadStack, ...] = ()
    python: tuple[ThreadStack, ...] = ()
    host: str = ""
    job_id: str = ""
    captured_unix_ns: int = 0
    engines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hook_json: str = ""

    @property
    def has_ended(self) -> bool:
        """The process had ended when its stacks were to be captured: a note says so."""
        return any("has ended" in note for note in self.notes)
