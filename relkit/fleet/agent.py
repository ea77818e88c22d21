"""One node's end of a channel: reads requests line by line, answers each from its own thread."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from relkit import __version__
from relkit.errors import RelkitError
from relkit.fleet import wire
from relkit.process import procfs
from relkit.process.interruptible_wait import wait_readable

IDLE_LIMIT_S = 600.0
"""An agent that receives nothing for this long ends: its controller is gone without a goodbye."""

_PR_SET_CHILD_SUBREAPER = 36

# What a handler may raise on bad input or a failing machine; it becomes an error reply.
_EXPECTED = (
    RelkitError,
    OSError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    ImportError,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One message to this node.

    Args:
        node: this node's name, as the controller calls it.
        op: what is asked; id: of this request, repeated in every reply.
        fields: the message's "all", overlaid with its "to" for this node.
        stopping: set when the agent ends; long handlers look at it.
    """

    node: str
    op: str
    id: int
    fields: Mapping[str, Any]
    stopping: threading.Event


Handler = Callable[[Request], Iterable[Mapping[str, Any]]]
"""Yields the replies to one request; "node", "id" and (where absent) "op" are added to each."""


class _LineWriter:
    """Writes whole lines from many threads to one stream."""

    def __init__(self, node: str, stream: BinaryIO, part_bytes: int) -> None:
        self._node = node
        self._stream = stream
        self._part_bytes = part_bytes
        self._lock = threading.Lock()

    def write(self, message: Mapping[str, Any]) -> None:
        """Write one message; does nothing where nobody reads any more (stdin has ended, too)."""
        try:
            line = wire.encode({"node": self._node, **message})
        except (TypeError, ValueError) as error:
            line = wire.encode(
                {"node": self._node, "op": "error", "id": message.get("id"), "detail": str(error)}
            )
        with self._lock, contextlib.suppress(BrokenPipeError, ValueError):
            for part in wire.in_parts(line, self._node, self._part_bytes):
                self._stream.write(part)
                self._stream.flush()


def serve(
    name: str,
    handlers: Mapping[str, Handler],
    stdin: BinaryIO,
    stdout: BinaryIO,
    *,
    part_bytes: int = 0,
    idle_limit_s: float = IDLE_LIMIT_S,
) -> int:
    """Say hello, then answer requests until end of file.

    Args:
        name: this node's name; the tag on every line.
        handlers: op -> handler; each request runs in a daemon thread of its own.
        stdin, stdout: the two ends of the channel; stdin is read through its file descriptor.
        part_bytes: longest line that the carrier keeps whole; 0 for any.
        idle_limit_s: silence after which the controller counts as lost.

    Returns:
        0 after end of file, 1 when the controller was lost or sent a line that never ends.
    """
    stopping = threading.Event()
    writer = _LineWriter(name, stdout, part_bytes)
    writer.write(_hello())
    buffer = bytearray()
    try:
        while True:
            if not wait_readable(stdin.fileno(), idle_limit_s):
                return 1
            data = os.read(stdin.fileno(), 1 << 16)
            if not data:
                return 0
            buffer += data
            *lines, rest = buffer.split(b"\n")
            buffer = bytearray(rest)
            for line in lines:
                _dispatch(name, bytes(line), handlers, writer, stopping)
            if len(buffer) > wire.MAX_LINE_BYTES:
                writer.write({"op": "error", "detail": "a line that never ends"})
                return 1
    finally:
        stopping.set()


def _dispatch(
    name: str,
    line: bytes,
    handlers: Mapping[str, Handler],
    writer: _LineWriter,
    stopping: threading.Event,
) -> None:
    try:
        message = wire.decode(line)
        request = _request(name, message, stopping)
    except wire.BadLine as error:
        writer.write({"op": "error", "detail": str(error)})
        return
    if request is None:
        return
    if request.op == "ping":
        writer.write({"op": "pong", "id": request.id, "unix_s": time.time()})
        return
    handler = handlers.get(request.op)
    if handler is None:
        detail = f"relkit {__version__} has no operation {request.op!r}"
        writer.write({"op": "error", "id": request.id, "request": request.op, "detail": detail})
        return
    threading.Thread(
        target=_answer, args=(handler, request, writer), name=request.op, daemon=True
    ).start()


def _request(name: str, message: dict[str, Any], stopping: threading.Event) -> Request | None:
    """The request for this node; None for heartbeats and for messages to other nodes."""
    op, number = message.get("op"), message.get("id", 0)
    common, to = message.get("all", {}), message.get("to")
    if not isinstance(op, str) or not isinstance(number, int):
        raise wire.BadLine("a message without op, or whose id is not a number")
    if not isinstance(common, dict) or not (to is None or isinstance(to, dict)):
        raise wire.BadLine("a message whose all or to is not an object")
    if op == "alive" or (to is not None and name not in to):
        return None
    mine = {} if to is None else to[name]
    if not isinstance(mine, dict):
        raise wire.BadLine("a message whose part for this node is not an object")
    return Request(name, op, number, {**common, **mine}, stopping)


def _answer(handler: Handler, request: Request, writer: _LineWriter) -> None:
    try:
        for reply in handler(request):
            writer.write({"op": request.op, **reply, "id": request.id})
    except _EXPECTED as error:
        detail = f"{type(error).__name__}: {error}"
        writer.write({"op": "error", "id": request.id, "request": request.op, "detail": detail})


def _hello() -> dict[str, Any]:
    return {
        "op": "hello",
        "protocol": wire.PROTOCOL,
        "version": __version__,
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "machine": machine_id(),
        "unix_s": time.time(),
    }


def machine_id() -> str:
    """The same for two names of one network stack: boot and network namespace; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return ""


def end_children(limit_s: float = 2.0) -> None:
    """Kill what handlers have started and not ended; for the very end of an agent.

    Parents come first: a shell that outlives its command goes on with the next one. What a killed
    process had just started becomes a child of this one (prctl(2), PR_SET_CHILD_SUBREAPER) and is
    found by the next look.

    Args:
        limit_s: how long to wait for what does not end at once, as the kernel may hold it, s.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    end = time.monotonic() + limit_s
    while living := [pid for pid in procfs.descendants(os.getpid()) if procfs.process(pid).runs(0)]:
        for pid in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not all(_ends_before(end, pid) for pid in living):
            return


def _ends_before(end: float, pid: int) -> bool:
    """Wait for the end of a process; False where that does not come in time.

    Without pidfds, True while there is time: the caller looks again.

    Args:
        end: as time.monotonic() has it.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (OSError, AttributeError):  # a kernel before 5.3, or a Python built on one
        return time.monotonic() < end
    try:
        return wait_readable(handle, end - time.monotonic())
    finally:
        os.close(handle)
