"""Signals and exit codes -> causes, for processes that say nothing themselves."""

from __future__ import annotations

import signal

from relkit.why.rules.told import Kind

_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "segfault",
    signal.SIGBUS: "segfault",
    signal.SIGILL: "segfault",
    signal.SIGFPE: "segfault",
    signal.SIGABRT: "abort",
}


def cause_of_signal(number: int) -> str:
    """The cause that a signal stands for; "" for one that says nothing."""
    return _SIGNALS.get(number, "")


def cause_of_exit_code(code: int) -> tuple[str, Kind]:
    """The cause that an exit code stands for, and how much it says.

    Args:
        code: negative for a signal, as Python has it, or 128 and the signal, as shells have it.
    """
    cause = cause_of_signal(-code if code < 0 else code - 128)
    return (cause, Kind.WEAK) if cause else ("launcher", Kind.LAUNCHER)
