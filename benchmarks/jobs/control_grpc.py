"""A leader, or many clients of it, over gRPC with mutual TLS; see launches/control_plane.py.

A stream a client, both ways, as that is the cheapest that gRPC has for a message every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from benchmarks.jobs.control_role import BEAT_MS, QUIET_S, Role, ask_for, cpu_s, memory_mb

IMPORT_MB, IMPORT_S = memory_mb(), time.perf_counter()
import grpc  # noqa: E402
import grpc.aio  # noqa: E402

IMPORT_S, IMPORT_MB = time.perf_counter() - IMPORT_S, memory_mb() - IMPORT_MB
_FOLDER = Path(os.environ.get("CONTROL_KEYS", "."))
_OPTIONS = (
    ("grpc.keepalive_time_ms", BEAT_MS),
    ("grpc.keepalive_timeout_ms", 3 * BEAT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.so_reuseport", 0),
)
_METHOD, _WRITE_S = "/relkit/Talk", 2.0


class _Stream(Protocol):
    """What is used of gRPC's end of a call, which has no types."""

    async def write(self, message: bytes) -> None: ...


class _Leader(grpc.GenericRpcHandler):  # type: ignore[misc]  # without stubs
    def __init__(self) -> None:
        self.count, self.wanted = 0, 0
        self.reached, self.gone = asyncio.Event(), asyncio.Event()
        self.newest: _Stream | None = None

    def service(self, _call: object) -> object:
        return grpc.stream_stream_rpc_method_handler(self._talk)

    async def _talk(self, messages: AsyncIterator[bytes], context: _Stream) -> None:
        try:
            async for _ in messages:
                self.newest, self.count = context, self.count + 1
                if self.count >= self.wanted:
                    self.reached.set()
        finally:
            self.gone.set()


async def _flood(context: _Stream, number: int) -> int:
    for count in range(number):
        try:
            await asyncio.wait_for(context.write(bytes(200)), _WRITE_S)
        except (TimeoutError, grpc.aio.UsageError):
            # It waits, or the stream has been ended.
            return count
    return number


def _read(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


async def _lead(role: Role) -> None:
    leader = _Leader()
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((leader,))
    pair = (_read("key.pem"), _read("cert.pem"))
    credentials = grpc.ssl_server_credentials([pair], _read("cert.pem"), require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    role.tell(port=port, import_s=IMPORT_S, import_mb=IMPORT_MB)
    loop, orders = asyncio.get_running_loop(), role.orders()
    while True:
        word, number = await loop.run_in_executor(None, lambda: next(orders, ("", 0)))
        if not word:
            return
        begun_s, begun_cpu_s, count = time.perf_counter(), cpu_s(), 0
        if word == "receive":
            leader.count, leader.wanted = 0, number
            leader.reached.clear()
            role.tell(ready=1)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(leader.reached.wait(), QUIET_S)
            count = leader.count
        elif word == "disconnected":
            leader.gone.clear()
            role.tell(ready=1)
            await leader.gone.wait()
        elif word == "flood":
            assert leader.newest is not None
            count = await _flood(leader.newest, number)
        wall_s = time.perf_counter() - begun_s
        role.tell(wall_s=wall_s, cpu_s=cpu_s() - begun_cpu_s, memory_mb=memory_mb(), count=count)


async def _connect(role: Role, port: int, count: int) -> None:
    credentials = grpc.ssl_channel_credentials(
        _read("cert.pem"), _read("key.pem"), _read("cert.pem")
    )
    channels = [
        grpc.aio.secure_channel(f"localhost:{port}", credentials, _OPTIONS) for _ in range(count)
    ]
    streams = [channel.stream_stream(_METHOD)(wait_for_ready=True) for channel in channels]
    role.tell(connecting=count)
    loop, orders = asyncio.get_running_loop(), role.orders()
    while True:
        word, _ = await loop.run_in_executor(None, lambda: next(orders, ("", 0)))
        if not word:
            return
        for first in range(0, count, 200):
            await asyncio.gather(*(each.write(bytes(200)) for each in streams[first : first + 200]))
        role.tell(sent=count)


def lead(role: Role) -> None:
    """Answer the driver until it closes the pipe."""
    asyncio.run(_lead(role))


def connect(role: Role, port: int, count: int) -> None:
    """Make the connections, and send on all of them whenever the driver says so."""
    asyncio.run(_connect(role, port, count))


if __name__ == "__main__":
    ask_for(sys.argv, lead, connect)
