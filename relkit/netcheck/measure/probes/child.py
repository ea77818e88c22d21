"""Runs a part of a probe in a separate process, so that a hang there hangs nothing else."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from relkit.errors import RelkitError
from relkit.process.bounded_child import end_group
from relkit.text.foreign_json import parse_json

_TAIL_BYTES = 2000
_REAP_S = 5.0
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[4])


class ChildFailed(RelkitError):
    """The process ended without a result.

    Args:
        message: its last line of output; timed_out: it was killed at its deadline.
    """

    next_step = "Run the same on that node by hand, with the environment of the job."

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


def run_in_child(
    module: str,
    order: Mapping[str, Any],
    *,
    timeout_s: float,
    keep: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run `python -m module` with the order on its stdin; its last line of stdout is the result.

    The process ends with its result, at the deadline, or when this process has ended: its stdin
    stays open while the result is awaited, and the thread of `read_order` ends it at end of file.

    Args:
        module: one that calls `read_order`; order: plain JSON.
        timeout_s: after this time it is killed.
        keep: file descriptors that it inherits; environment: added to ours.

    Raises:
        ChildFailed: no result.
    """
    until_s = time.monotonic() + timeout_s
    with tempfile.TemporaryFile() as errors:
        process = _start(module, errors, keep, environment or {})
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as stdin, process.stdout as stdout:
            try:
                stdin.write(json.dumps(dict(order)).encode() + b"\n")
                stdin.flush()
                output, timed_out = _read(stdout, until_s)
            except BrokenPipeError:
                output, timed_out = b"", False
            finally:
                # The whole session: the probe may have started helpers of its own.
                end_group(process, _REAP_S)
        if timed_out:
            raise ChildFailed(f"no result within {timeout_s:.0f} s", timed_out=True)
        return _result(output, process.returncode, errors)


def _start(
    module: str, errors: IO[bytes], keep: Sequence[int], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    paths = [_PACKAGE_PARENT, os.environ.get("PYTHONPATH", "")]
    python_path = os.pathsep.join(path for path in paths if path)
    try:
        return subprocess.Popen(
            # Not from the current folder: a file torch.py in there is not torch.
            [sys.executable, "-m", module],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=tuple(keep),
            env={**os.environ, "PYTHONPATH": python_path, **environment},
            start_new_session=True,
        )
    except OSError as error:
        raise ChildFailed(f"cannot start {sys.executable}: {error}") from error


def _read(stdout: IO[bytes], until_s: float) -> tuple[bytes, bool]:
    output = bytearray()
    poller = select.poll()
    poller.register(stdout, select.POLLIN | select.POLLHUP)
    while True:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not poller.poll(left_s * 1000):
            return bytes(output), True
        part = os.read(stdout.fileno(), 1 << 16)
        if not part:
            return bytes(output), False
        output += part


def _result(output: bytes, code: int, errors: IO[bytes]) -> dict[str, Any]:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    try:
        result = parse_json(lines[-1]) if lines else None
    except ValueError:
        result = None
    if isinstance(result, dict):
        if "error" in result:
            raise ChildFailed(str(result["error"]))
        return result
    errors.seek(max(errors.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
    tail = errors.read().decode("utf-8", "replace").strip().splitlines()
    raise ChildFailed(tail[-1] if tail else f"the process ended with code {code} and no output")


def read_order() -> dict[str, Any]:
    """In the child: the order. From now on the process ends when its parent has ended."""
    raw = bytearray()
    while not raw.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            os._exit(1)
        raw += part
    threading.Thread(target=_end_with_parent, daemon=True, name="relkit-lifeline").start()
    order = parse_json(raw)
    assert isinstance(order, dict)
    return order


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


def return_result(result: Mapping[str, Any]) -> None:
    """In the child: return the result and end at once, even if threads still run."""
    os.write(1, b"\n" + json.dumps(dict(result)).encode() + b"\n")
    os._exit(0)
