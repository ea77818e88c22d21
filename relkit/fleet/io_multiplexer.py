"""Moves lines between many child processes and one reader; none of them can block another."""

from __future__ import annotations

import contextlib
import resource
import selectors
import signal
import time
from collections import deque
from dataclasses import dataclass

from relkit.fleet.stream import MAX_UNSENT_BYTES, Stream
from relkit.fleet.wire import BadLine

_LOOK_S = 0.25
_DRAIN_S = 2.0
# While a send is stuck, nothing more than this is read ahead of the receiver.
_MAX_QUEUED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a stream did.

    Args:
        key: of the stream.
        kind: "line" (data holds it), "complaint" (a line of stderr, in text), or "end".
        data, text: see kind; for "end", text has the reason where we ended it.
        code: exit code for "end".
        complaint: for "end": the tail of stderr.
    """

    key: str
    kind: str
    data: bytes = b""
    text: str = ""
    code: int = 0
    complaint: str = ""


class IoMultiplexer:
    """Streams by key, and the events that were not read yet."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._streams: dict[str, Stream] = {}
        self._ending: dict[str, float] = {}
        self._events: deque[Event] = deque()
        self._queued_bytes = 0
        self._next_look = 0.0

    @property
    def keys(self) -> list[str]:
        """The streams that have not ended."""
        return list(self._streams)

    def add(self, stream: Stream) -> None:
        """Take over a new stream."""
        self._streams[stream.key] = stream
        self._selector.register(stream.stdout, selectors.EVENT_READ, (stream, "out"))
        self._selector.register(stream.stderr, selectors.EVENT_READ, (stream, "err"))

    def feed(self, key: str, data: bytes) -> None:
        """Queue bytes for one stream; a stream with megabytes unread is ended."""
        stream = self._streams.get(key)
        if stream is None or key in self._ending:
            return
        if len(stream.unsent) + len(data) > MAX_UNSENT_BYTES:
            self.end(key, "it does not read its input")
            return
        waiting = bool(stream.unsent)
        stream.unsent += data
        if not waiting:
            self._selector.register(stream.stdin, selectors.EVENT_WRITE, (stream, "in"))

    def forget_complaint(self, key: str) -> None:
        """What this stream's stderr has had so far is no part of its "end" event."""
        if key in self._streams:
            self._streams[key].forget_complaint()

    def unsent(self) -> list[str]:
        """The streams with unsent bytes."""
        return [key for key, s in self._streams.items() if s.unsent and key not in self._ending]

    def poll(self, timeout_s: float) -> Event | None:
        """The next event, or None when the time is up."""
        end = time.monotonic() + timeout_s
        while not self._events:
            left = end - time.monotonic()
            self._select_once(max(0.0, min(left, 0.02 if self._ending else _LOOK_S)))
            if left <= 0:
                break
        if not self._events:
            return None
        event = self._events.popleft()
        self._queued_bytes -= len(event.data)
        return event

    def flush(self, timeout_s: float) -> list[str]:
        """Send all that is queued, reading meanwhile; the keys of streams with bytes left."""
        end = time.monotonic() + timeout_s
        while self.unsent() and (left := end - time.monotonic()) > 0:
            self._select_once(min(left, _LOOK_S))
        return self.unsent()

    def end(self, key: str, why: str) -> None:
        """Kill one stream; its "end" event carries the reason."""
        stream = self._streams.get(key)
        if stream is not None:
            self._retire(stream, why)

    def close(self, deadline_s: float) -> None:
        """End of file to all, then SIGTERM to those that stay, then SIGKILL."""
        for stream in self._streams.values():
            self._unregister(stream)
            stream.hang_up()
        began = time.monotonic()
        for share, number in ((0.6, signal.SIGTERM), (1.0, signal.SIGKILL)):
            self._wait_until_ended(began + share * deadline_s)
            for stream in self._streams.values():
                stream.signal(number)
        for stream in self._streams.values():
            stream.reap()
        self._streams.clear()
        self._selector.close()

    def _wait_until_ended(self, end: float) -> None:
        while time.monotonic() < end:
            for key, stream in list(self._streams.items()):
                # A pipe that nobody reads must not keep a child from ending.
                with contextlib.suppress(BadLine):
                    stream.read_lines()
                stream.read_errors()
                if stream.has_ended():
                    stream.reap()
                    del self._streams[key]
            if not self._streams:
                return
            time.sleep(0.01)

    def _select_once(self, timeout_s: float) -> None:
        for chosen, _ in self._selector.select(timeout_s):
            stream, which = chosen.data
            if stream.key not in self._streams:
                continue
            if which == "in":
                if not stream.write() or not stream.unsent:
                    self._selector.unregister(stream.stdin)
            elif which == "out":
                if self._queued_bytes < _MAX_QUEUED_BYTES:
                    self._read(stream)
            else:
                lines, more = stream.read_errors()
                self._events.extend(Event(stream.key, "complaint", text=line) for line in lines)
                if not more:
                    self._selector.unregister(stream.stderr)
        self._reap_ended()

    def _read(self, stream: Stream) -> None:
        try:
            lines = stream.read_lines()
        except BadLine as error:
            self._retire(stream, f"sent {error}")
            return
        self._queue(stream, lines)
        if not stream.out_open:
            self._selector.unregister(stream.stdout)
            self._ending[stream.key] = time.monotonic() + _DRAIN_S

    def _reap_ended(self) -> None:
        """Reap what has ended, also where a grandchild keeps the pipe open."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            for stream in list(self._streams.values()):
                if stream.key not in self._ending and stream.has_ended():
                    self._read_rest(stream)
                    self._ending[stream.key] = now
        for key, limit in list(self._ending.items()):
            stream = self._streams[key]
            if stream.has_ended() or now >= limit:
                self._retire(stream, "")

    def _read_rest(self, stream: Stream) -> None:
        with contextlib.suppress(BadLine):
            while lines := stream.read_lines():
                self._queue(stream, lines)

    def _queue(self, stream: Stream, lines: list[bytes]) -> None:
        self._events.extend(Event(stream.key, "line", data=line) for line in lines)
        self._queued_bytes += sum(map(len, lines))

    def _retire(self, stream: Stream, why: str) -> None:
        self._unregister(stream)
        self._ending.pop(stream.key, None)
        del self._streams[stream.key]
        with contextlib.suppress(OSError):
            stream.read_errors()
        code = stream.reap()
        self._events.append(
            Event(stream.key, "end", text=why, code=code, complaint=stream.complaint)
        )

    def _unregister(self, stream: Stream) -> None:
        for pipe in (stream.stdin, stream.stdout, stream.stderr):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(pipe)


def allow_files(wanted: int) -> None:
    """Raise the soft limit of open files where the hard one lets us: three pipes a node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        top = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, top), hard))
