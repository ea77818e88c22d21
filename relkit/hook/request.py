"""Sends a request to the hook in another process: a real-time signal with a value."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import secrets
import signal

from relkit.hook import layout

_LIBC = ctypes.CDLL(None, use_errno=True)
_SI_QUEUE = -1
_CALL_NUMBERS = {"x86_64": 297, "aarch64": 240}


class _SignalInfo(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_int),
        ("error", ctypes.c_int),
        ("code", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("pid", ctypes.c_int),
        ("uid", ctypes.c_uint),
        ("value", ctypes.c_uint64),
        ("rest", ctypes.c_char * 96),
    )


def new_generation() -> int:
    """A number that tells the answers to one request from those to all others."""
    return secrets.randbits(32) or 1


def send(pid: int, tid: int, signal_number: int, kind: int, generation: int) -> None:
    """Ask one thread; the caller has made sure that the process handles the signal.

    Args:
        pid: process; tid: one of its threads.
        signal_number: the hook's signal, from the header.
        kind: layout.REQUEST_CAPTURE or REQUEST_RELEASE.
        generation: from new_generation.

    Raises:
        ProcessLookupError: the thread is gone.
        OSError: not a real-time signal, not permitted, or too many signals are queued.
    """
    if not signal.SIGRTMIN <= signal_number <= signal.SIGRTMAX:
        # A number below would end the process, or be taken for something else.
        raise OSError(errno.EINVAL, f"{signal_number} is no real-time signal")
    call = _CALL_NUMBERS.get(platform.machine())
    if call is None:
        raise OSError(38, f"no signal with a value on {platform.machine()}")
    info = _SignalInfo(
        number=signal_number,
        code=_SI_QUEUE,
        pid=os.getpid(),
        uid=os.getuid(),
        value=layout.REQUEST_MAGIC << 48 | kind << 32 | generation,
    )
    # rt_tgsigqueueinfo: to one thread (kill may choose any), with a value (tgkill has none). libc
    # has no wrapper for it.
    arguments = (ctypes.c_long(call), pid, tid, signal_number, ctypes.byref(info))
    if _LIBC.syscall(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
