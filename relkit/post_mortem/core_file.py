"""The core file of a process that crashed, and the stack in it."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from relkit.post_mortem.model import safe_line, safe_lines
from relkit.process.bounded_child import find_tool, run_child

_PATTERN = Path("/proc/sys/kernel/core_pattern")
_USES_PID = Path("/proc/sys/kernel/core_uses_pid")
_STACK_LINE = re.compile(r"#\d+ ")
_MAX_FRAMES = 24


def dumped_core(pid: int) -> bool:
    """The kernel says that this child, which has ended and is not reaped, has dumped core."""
    try:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return status is not None and status.si_code == os.CLD_DUMPED


def core_names(pattern: str, uses_pid: bool, pid: int, host: str) -> str:
    """The glob that the core file of a process matches; "" where a program takes it.

    Args:
        pattern: of /proc/sys/kernel/core_pattern (core(5)).
        uses_pid: /proc/sys/kernel/core_uses_pid is set.
    """
    if not pattern or pattern.startswith("|"):
        return ""
    names = []
    has_pid = False
    for piece in re.findall(r"%.|[^%]+", pattern):
        if piece in ("%p", "%P"):
            has_pid = True
            # %P is the number in the first namespace, which differs in a container.
            names.append(str(pid) if piece == "%p" else "*")
        elif piece == "%h":
            names.append(host)
        elif piece == "%%":
            names.append("%")
        elif piece.startswith("%"):
            names.append("*")
        else:
            names.append(re.sub(r"([\[\]*?])", r"[\1]", piece))
    if uses_pid and not has_pid:
        names.append(f".{pid}")
    # Two stars side by side mean something else to a glob, or nothing at all.
    return re.sub(r"\*+", "*", "".join(names))


def find_core(pid: int, folders: tuple[Path, ...], since_unix_s: float) -> Path | None:
    """The newest core file that this process may have left.

    Args:
        folders: where it may have run.
        since_unix_s: older files are another's, Unix time.
    """
    names = core_names(
        _first_line(_PATTERN), _first_line(_USES_PID) == "1", pid, socket.gethostname()
    )
    if not names:
        return None
    candidates = []
    for path in _matches(names, folders):
        try:
            facts = path.stat()
        except OSError:
            continue
        if facts.st_mtime >= since_unix_s and path.is_file():
            candidates.append((facts.st_mtime, path))
    return max(candidates)[1] if candidates else None


def _matches(names: str, folders: tuple[Path, ...]) -> Iterator[Path]:
    if names.startswith("/"):
        root, _, rest = names[1:].partition("/")
        yield from Path("/").glob(f"{root}/{rest}" if rest else root)
        return
    for folder in folders:
        yield from folder.glob(names)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0].strip()
    except OSError:
        return ""


def stack_of(core: Path, timeout_s: float) -> tuple[str, ...]:
    """The stack of the thread that crashed, innermost frame first; () without gdb or in time.

    gdb loads no symbols from a network and runs nothing of the folder it is in. With torch's
    libraries it takes 5 s or more, so that on a busy machine there may be no stack.
    """
    gdb = find_tool("gdb")
    if gdb is None:
        return ()
    argv = [
        gdb, "--batch", "--nx", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off",
        "-iex", "set print frame-arguments none", "-ex", f"bt {_MAX_FRAMES}",
        sys.executable, str(core),
    ]  # fmt: skip
    try:
        result = run_child(argv, timeout_s)
    except OSError:
        return ()
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    return safe_lines([safe_line(line) for line in lines if _STACK_LINE.match(line)][:_MAX_FRAMES])
