"""Run one vendor tool: a deadline, bounded output, no shell, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import relkit
from relkit.process.bounded_child import end_group
from relkit.process.held_signals import signals_held
from relkit.process.interruptible_wait import wait_readable

_MAX_BYTES = 1 << 20
_TICK_S = 0.05
_REAP_S = 2.0

stopping: ContextVar[threading.Event | None] = ContextVar("stopping", default=None)
"""Ends the tools of this context when it is set: a thread cannot be interrupted from outside."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What became of one run.

    Args:
        exit_code: None where it was ended by us or never started; -N for signal N.
        output: stdout and stderr together, at most 1 MiB.
        timed_out: the deadline passed; flooded: it printed more than we keep.
        not_started: why it could not be started, or "".
    """

    exit_code: int | None
    output: str = ""
    timed_out: bool = False
    flooded: bool = False
    not_started: str = ""

    @property
    def last_line(self) -> str:
        """The last line with something on it, printable and short: tools put errors there."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        text = "".join(c if c.isprintable() else "?" for c in lines[-1]) if lines else ""
        return text[:200]


def run_tool(argv: Sequence[str], timeout_s: float, *, folder: Path | None = None) -> ToolRun:
    """Run a program until it ends, the deadline passes, it floods us, or `stopping` is set.

    The program gets a process group of its own, and the whole group is ended afterwards: some
    tools start helpers that outlive them.

    Args:
        argv: program and arguments.
        timeout_s: limit, s.
        folder: where it runs; here where None.
    """
    kept = bytearray()
    ended = False
    child = None
    try:
        try:
            with signals_held():
                child = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=folder,
                )
        except (OSError, ValueError) as error:
            return ToolRun(None, not_started=str(error))
        ended = _read(child, kept, time.monotonic() + timeout_s)
    finally:
        if child is not None:
            end_group(child, _REAP_S)
            assert child.stdout is not None
            child.stdout.close()
    flooded = len(kept) > _MAX_BYTES
    return ToolRun(
        child.returncode if ended else None,
        bytes(kept[:_MAX_BYTES]).decode("utf-8", "replace"),
        timed_out=not ended and not flooded,
        flooded=flooded,
    )


def _read(child: subprocess.Popen[bytes], kept: bytearray, deadline: float) -> bool:
    """Collect output until the child ends (True), or it must be ended (False)."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    os.set_blocking(pipe, False)
    is_open = True
    stop = stopping.get()
    while True:
        # WNOWAIT: as long as the leader is not reaped, its group's number cannot be reused.
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        while is_open and len(kept) <= _MAX_BYTES:
            try:
                piece = os.read(pipe, 1 << 16)
            except BlockingIOError:
                break
            kept += piece
            is_open = bool(piece)
        if ended:
            return True
        left_s = deadline - time.monotonic()
        if left_s <= 0 or len(kept) > _MAX_BYTES or (stop is not None and stop.is_set()):
            return False
        pause_s = min(_TICK_S, left_s)
        if is_open:
            wait_readable(pipe, pause_s)
        else:
            time.sleep(pause_s)


def run_module(name: str, arguments: Sequence[str], timeout_s: float) -> ToolRun:
    """Run a module of relkit in a Python of its own.

    Python looks for modules in the folder where it is started, before all others. It is started
    where relkit itself lies, so that no file of the folder that we stand in is ever taken for one.
    """
    folder = Path(relkit.__file__).resolve().parents[1]
    return run_tool([sys.executable, "-m", name, *arguments], timeout_s, folder=folder)
