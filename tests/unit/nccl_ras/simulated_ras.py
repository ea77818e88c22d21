"""A simulated listener of NCCL's RAS, written after NCCL 2.30's client_support.cc; not NCCL."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def ras_rank(
    rank: int, pid: int, host: str = "127.0.0.1", *, status: Mapping[str, Any] | None = None,
    **launched: int,
) -> dict[str, Any]:  # fmt: skip
    """A rank that has launched these collectives."""
    return {
        "rank": rank, "host": host, "pid": pid, "cuda_dev": rank, "nvml_dev": rank,
        "status": {
            "init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
            "abort_flag": False, **(status or {}),
        },
        "collective_counts": {name: launched.get(name, 0) for name in FUNCTIONS},
    }  # fmt: skip


def ras_missing(
    rank: int, pid: int, host: str = "127.0.0.1", *, dead: bool = False, unresponsive: bool = True
) -> dict[str, Any]:
    """A rank of which there are no counts."""
    return {
        "rank": rank, "host": host, "pid": pid, "cuda_dev": rank, "nvml_dev": rank,
        "status": {"unresponsive": unresponsive, "considered_dead": dead},
    }  # fmt: skip


def ras_answer(
    *communicators: tuple[str, Sequence[dict[str, Any]], Sequence[dict[str, Any]]],
) -> bytes:
    """All that there is; each communicator with its hash, ranks and missing ranks."""
    return json.dumps(
        {
            "nccl_version": "2.30.3", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
            "timestamp": "2026-11-24 12:00:00", "communicators_count": len(communicators),
            "communicators": [
                {
                    "hash": name, "secondary_hash": "0x1:0x2", "size": len(ranks) + len(missing),
                    "ranks_count": len(ranks), "missing_ranks_count": len(missing),
                    "ranks": ranks, "missing_ranks": missing,
                }
                for name, ranks, missing in communicators
            ],
            "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
        },
        indent=2,
    ).encode()  # fmt: skip


@dataclass
class Listener:
    """A running one.

    Args:
        port: where it listens; commands: all that came.
        answer: gives the JSON; None = it stays silent after that command.
        knows_json: False as before NCCL 2.28.
    """

    port: int
    answer: Callable[[], bytes | None]
    knows_json: bool = True
    greeting: bytes = b"SERVER PROTOCOL 2\n"
    commands: list[str] = field(default_factory=list)

    def serve(self, connection: socket.socket, closing: threading.Event) -> None:
        """One client, as NCCL serves it: the connection is closed after the answer."""
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                command = line.decode().strip().lower()
                self.commands.append(command)
                if command.startswith("client protocol "):
                    connection.sendall(self.greeting)
                elif command.startswith("timeout ") or (
                    command == "set format json" and self.knows_json
                ):
                    connection.sendall(b"OK\n")
                elif command == "status":
                    said = self.answer()
                    if said is None:
                        closing.wait()
                    else:
                        connection.sendall(said)
                    return
                else:
                    connection.sendall(f"ERROR: Unknown command {command}\n".encode())


@contextmanager
def listening(answer: Callable[[], bytes | None], **how: Any) -> Iterator[Listener]:  # noqa: ANN401
    """A listener at a free port of loopback."""
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = Listener(server.getsockname()[1], answer, **how)
        threads: list[threading.Thread] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                thread = threading.Thread(target=_quietly, args=(listener, connection, closing))
                thread.start()
                threads.append(thread)

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield listener
        finally:
            closing.set()
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for thread in threads:
                thread.join()


def _quietly(listener: Listener, connection: socket.socket, closing: threading.Event) -> None:
    try:
        listener.serve(connection, closing)
    except OSError:
        return
