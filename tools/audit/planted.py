"""Readers with a defect each, for the test that a defect is noticed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tools.audit.target import Target

_SEED = b"header 1 2 3 4 5 6 7 8 9"


def _raises(_: bytes) -> None:
    raise IndexError("planted")


def _allocates(_: bytes) -> None:
    bytearray(3 << 30)


def _hangs(_: bytes) -> None:
    signal.sigwait([signal.SIGUSR1])


def _crashes(_: bytes) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _is_slow(_: bytes) -> None:
    end_s = time.process_time() + 0.5
    while time.process_time() < end_s:
        pass


def _target(name: str, defect: Callable[[bytes], None]) -> Target:
    def run(data: bytes) -> None:
        # Not in the first input: a reader that works, and then does not.
        if data[:6] == b"header" and b"9" not in data:
            defect(data)

    return Target(name, "planted", lambda _: [_SEED], lambda _: run, "text")


PLANTED = {
    target.name: target
    for target in (
        _target("raises", _raises),
        _target("allocates", _allocates),
        _target("hangs", _hangs),
        _target("crashes", _crashes),
        _target("slow", _is_slow),
    )
}
