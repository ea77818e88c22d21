"""The launchers of a container, asked to save and end before the kubelet ends them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from relkit.errors import EXIT_OK, EXIT_UNKNOWN


def stop_launchers(timeout_s: float, log: Callable[[str], None]) -> int:
    """Send SIGTERM to each launcher in this control group, and wait for it.

    Args:
        timeout_s: wait so long.
        log: writes one line to the terminal.

    Returns:
        The exit code: 0, or 3 where one is still there.
    """
    launchers = launchers_here()
    if not launchers:
        log("no relkit launch runs here")
        return EXIT_OK
    for process in launchers:
        try:
            process.terminate()
        except psutil.Error as error:
            log(f"process {process.pid} cannot be asked to end: {type(error).__name__}")
    pids = ", ".join(str(process.pid) for process in launchers)
    log(f"asked to save and end: process {pids}")
    _, alive = psutil.wait_procs(launchers, timeout=timeout_s)
    if alive:
        log(f"not ended within {timeout_s:g} s: {', '.join(str(each.pid) for each in alive)}")
        return EXIT_UNKNOWN
    return EXIT_OK


def launchers_here() -> list[psutil.Process]:
    """The launchers of this user's in this control group, which is the container's."""
    here, own = _group(os.getpid()), os.geteuid()
    launchers: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            is_ours = process.uids().effective == own and is_launcher(process.cmdline())
        except psutil.Error:
            continue
        if is_ours and here and _group(process.pid) == here:
            launchers[process.pid] = process
    # What a launcher has forked has its command line for a moment.
    return [each for each in launchers.values() if _parent(each) not in launchers]


def is_launcher(words: Sequence[str]) -> bool:
    """Whether a command line is `relkit launch`, by itself or run by an interpreter.

    A worker or a shell that only mentions it is none.
    """
    for number, word in enumerate(words[:6]):
        if Path(word).name == "relkit" and "launch" in words[number + 1 :]:
            return number == 0 or Path(words[0]).name.startswith("python")
    return False


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def _group(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
