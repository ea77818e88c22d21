"""The abort of a rank while Python shuts down, which hides why the rank ended; pure.

A thread of torch that drops the last reference to a tensor needs the interpreter for it. Where the
interpreter is being taken down meanwhile, CPython before 3.14 ends that thread by `pthread_exit`,
in a C++ destructor that must not be unwound: std::terminate, and SIGABRT instead of the exit code.
Any script of a job with gloo can end so (pytorch/pytorch#179291), most often on a busy host.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

# Of libstdc++, and of glibc where C++ code has caught the end of a thread.
_ENDINGS = ("terminate called without an active exception", "FATAL: exception not rethrown")
# What torch and its launcher put before a line of a worker: "[rank2]: ", "[default0]:".
PREFIX = re.compile(r"^\[\w{1,40}\]: ?")
_FRAME = re.compile(r'  File ".*", line \d')


def may_have_ended_in_shutdown(exit_code: int | None, output: Sequence[str]) -> bool:
    """It aborted, and its output says that a thread was ended in C++, or is not known.

    Args:
        exit_code: negative for a signal; output: the last lines that it wrote to stderr, or none.
    """
    if exit_code != -signal.SIGABRT:
        return False
    return not output or _before_the_abort(output) is not None


def exception_before_abort(exit_code: int | None, output: Sequence[str]) -> str:
    """What it raised before it aborted in that way: `ValueError: bad batch`; "" where none is seen.

    The traceback must be the last thing that the rank wrote before, as that of an exception which
    ended it is; after one that was only logged comes more.

    Args:
        exit_code: negative for a signal; output: the last lines that it wrote to stderr, or none.
    """
    before = _before_the_abort(output) if exit_code == -signal.SIGABRT else None
    if before is None:
        return ""
    # Of a long traceback only the end is kept, and its last frame is there in any case.
    frames = [i for i, line in enumerate(before) if _FRAME.match(PREFIX.sub("", line))]
    if not frames:
        return ""
    prefix = _prefix(before[frames[-1]])
    told = [line for line in before[frames[-1] + 1 :] if not _is_source(line)]
    # The lines of a longer message follow it; only a prefix tells them from other output.
    if not told or (len(told) > 1 and not prefix) or any(_prefix(x) != prefix for x in told):
        return ""
    return PREFIX.sub("", told[0]).strip()


def _before_the_abort(output: Sequence[str]) -> Sequence[str] | None:
    for index in range(len(output) - 1, -1, -1):
        if output[index].strip() in _ENDINGS:
            return output[:index]
    return None


def _prefix(line: str) -> str:
    match = PREFIX.match(line)
    return match[0].strip() if match else ""


def _is_source(line: str) -> bool:
    return PREFIX.sub("", line).startswith("    ")
