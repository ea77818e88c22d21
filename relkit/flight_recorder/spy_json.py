"""What `py-spy dump --json` prints -> the stacks of its processes; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from relkit.errors import CaptureFailed
from relkit.flight_recorder.spy_text import MAX_FRAMES, MAX_PROCESSES, MAX_THREADS, SpyProcess
from relkit.stacks.engines.pyspy_json import SpyFrame, threads_of
from relkit.stacks.model import Role, ThreadStack
from relkit.stacks.roles import role_of_frames, role_of_name

_Read = tuple[ThreadStack, tuple[SpyFrame, ...]]


def parse_spy_json(text: str) -> list[SpyProcess]:
    """The processes of one document, or of several one after the other.

    Args:
        text: of the file.

    Raises:
        ValueError: it is not py-spy's JSON; the text says why.
    """
    by_pid: dict[int, list[_Read]] = {}
    decoder, at = json.JSONDecoder(), 0
    try:
        while (at := _next(text, at)) < len(text):
            document, at = decoder.raw_decode(text, at)
            for pid, thread, frames in threads_of(document):
                threads = by_pid.setdefault(pid, [])
                if len(threads) < MAX_THREADS and len(by_pid) <= MAX_PROCESSES:
                    threads.append((thread, frames))
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except CaptureFailed as error:
        raise ValueError(str(error)) from error
    return [_process(pid, threads) for pid, threads in by_pid.items() if threads]


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _process(pid: int, read: Sequence[_Read]) -> SpyProcess:
    threads, native = [], []
    for thread, frames in read:
        python = tuple(each.frame for each in frames[:MAX_FRAMES] if not each.native)
        below = tuple(each.frame for each in frames[:MAX_FRAMES] if each.native)
        is_main = thread.name == "MainThread" or thread.os_thread_id == pid > 0
        role = Role.MAIN if is_main else role_of_name(thread.name) or role_of_frames(python)
        known = replace(thread, role=role, state="R" if thread.active else "S")
        threads.append(replace(known, frames=python))
        if below:
            native.append(replace(known, frames=below))
    if not any(thread.role is Role.MAIN for thread in threads):
        threads[-1] = replace(threads[-1], role=Role.MAIN)
    return SpyProcess(pid, None, tuple(threads), tuple(native), "py-spy JSON")
