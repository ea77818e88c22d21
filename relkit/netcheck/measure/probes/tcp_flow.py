"""Data streams of the tcp probe: threads that send, threads that receive, and what has arrived."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

from relkit.net.handshake import Label
from relkit.netcheck.measure.probes.base import ProbeFailed
from relkit.netcheck.model import Failure

# Measured on loopback with four streams: 128 KiB stays in the CPU's cache and beats 1 MiB.
_RECEIVE_BYTES = 128 << 10
# TCP's slow start and the first burst through a rate limit do not show the link's speed.
_WARM_UP_SHARE = 0.2
_FIRST_BYTE_S = 2.0
# struct tcp_info of linux/tcp.h, up to tcpi_bytes_received (Linux 4.1).
_BYTES_RECEIVED_AT, _TCP_INFO_BYTES = 128, 136
# A look at all streams that takes longer than this, s, is made again, this often at most.
_LOOK_S, _LOOKS = 1e-3, 20
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Received:
    """What one end received in one window.

    Args:
        size_bytes: how much; seconds: in what time; silent: streams that carried nothing.
    """

    size_bytes: int
    seconds: float
    silent: int = 0

    @property
    def gbps(self) -> float:
        """Gbit/s."""
        return self.size_bytes * 8 / self.seconds / 1e9 if self.seconds > 0 else 0.0


def arrived_bytes(stream: socket.socket) -> int | None:
    """What the kernel has received on a TCP connection, read by the program or not.

    Returns:
        None for a socket of another kind.
    """
    try:
        info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return None
    if len(info) < _TCP_INFO_BYTES:
        return None
    return int(struct.unpack_from("=Q", info, _BYTES_RECEIVED_AT)[0])


def labels(phase: int, streams: int, ways: str) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
    """Labels of one flow's streams, away from the connecting end and towards it.

    Args:
        phase: number of the flow, from 1.
        streams: how many each way; ways: "out", "in" or "both".

    Raises:
        ValueError: no such flow.
    """
    if phase < 1 or ways not in ("out", "in", "both"):
        raise ValueError(f"no such flow: phase {phase}, ways {ways!r}")
    away = tuple(Label(phase, number) for number in range(streams))
    towards = tuple(Label(phase, streams + number) for number in range(streams))
    return (away if ways != "in" else ()), (towards if ways != "out" else ())


class Flow:
    """The streams of one flow at one end; leaving the context ends streams and threads.

    Args:
        message_bytes: size of each message that is sent.
    """

    def __init__(self, message_bytes: int) -> None:
        self._message_bytes = message_bytes
        self._senders: list[socket.socket] = []
        self._receivers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        # Of each receiver: bytes that its thread has read, and that had arrived at the start.
        self._counts: list[int] = []
        self._at_start: list[int] = []
        self._broken: list[str] = []
        self._begun, self._broke = threading.Event(), threading.Event()

    def __enter__(self) -> Flow:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def send_on(self, stream: socket.socket) -> None:
        """Take over a stream to send on."""
        self._senders.append(stream)

    def receive_on(self, stream: socket.socket) -> None:
        """Take over a stream to receive from."""
        self._receivers.append(stream)

    def start(self) -> None:
        """Start one thread for each stream."""
        message = bytes(self._message_bytes) if self._senders else b""
        self._counts = [0] * len(self._receivers)
        self._at_start = self._arrived()
        self._threads = [
            *(self._thread(_send, (stream, message)) for stream in self._senders),
            *(self._thread(self._receive, (i,)) for i in range(len(self._receivers))),
        ]
        for thread in self._threads:
            thread.start()

    def window(self, duration_s: float) -> Received:
        """Bytes that arrive within `duration_s` after the first one, without the warm-up.

        Raises:
            ProbeFailed: a stream broke, or nothing arrived.
        """
        begun = self._begun.wait(max(duration_s, _FIRST_BYTE_S))
        # Not a sleep: a stream that breaks ends the window at once.
        self._broke.wait(duration_s * _WARM_UP_SHARE if begun else 0)
        before, start = self._look()
        self._broke.wait(duration_s * (1 - _WARM_UP_SHARE) if begun else 0)
        after, end = self._look()
        # On a busy host a short window may fall between two time slices of the sender.
        while begun and after == before and end - start < duration_s + _FIRST_BYTE_S:
            if self._broke.wait(duration_s):
                break
            after, end = self._look()
        if self._broken:
            raise ProbeFailed(Failure.RESET, f"a data stream broke: {self._broken[0]}")
        if not begun:
            raise ProbeFailed(
                Failure.DEADLINE,
                "connected, but no data arrived: small packets pass and large ones do not"
                " (different MTUs on the route?)",
            )
        if after == before:
            raise ProbeFailed(Failure.DEADLINE, "the data stopped after some bytes")
        silent = sum(now == then for now, then in zip(self._arrived(), self._at_start, strict=True))
        return Received(after - before, end - start, silent)

    def _look(self) -> tuple[int, float]:
        """Bytes that have arrived on all streams, and when that was.

        As the kernel counts them: a reader that has to wait, for a core or for another thread of
        its process, leaves bytes in buffers and takes many at once later, also some of before the
        window.
        """
        for _ in range(_LOOKS):
            began_s = time.perf_counter()
            total_bytes = sum(self._arrived())
            ended_s = time.perf_counter()
            if ended_s - began_s < _LOOK_S:
                break
        return total_bytes, (began_s + ended_s) / 2

    def _arrived(self) -> list[int]:
        """Bytes for each receiver; where the kernel does not count them, those that were read."""
        pairs = zip(self._receivers, self._counts, strict=True)
        return [max(counted, arrived_bytes(stream) or 0) for stream, counted in pairs]

    def _thread(self, target: object, arguments: Iterable[object]) -> threading.Thread:
        assert callable(target)
        return threading.Thread(
            target=target, args=tuple(arguments), daemon=True, name="relkit-flow"
        )

    def _receive(self, index: int) -> None:
        stream, buffer = self._receivers[index], bytearray(_RECEIVE_BYTES)
        counts, begun = self._counts, self._begun
        try:
            while size := stream.recv_into(buffer):
                counts[index] += size
                if not begun.is_set():
                    begun.set()
            self._broken.append("closed by the other end")
        except OSError as error:
            self._broken.append(str(error))
        self._broke.set()
        begun.set()

    def _end(self) -> None:
        streams = [*self._senders, *self._receivers]
        for stream in streams:
            with contextlib.suppress(OSError):
                # Data still in buffers would occupy a slow link during the next flow.
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for stream in streams:
            stream.close()


def _send(stream: socket.socket, message: bytes) -> None:
    # The receiver ends the stream when its window is over, so an error is the normal end.
    with contextlib.suppress(OSError):
        while True:
            stream.sendall(message)
