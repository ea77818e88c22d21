"""Servers on Unix sockets that say what a test wants; not torch's."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Answer = Callable[[str], bytes | None]


def http(body: bytes, status: str = "200 OK") -> bytes:
    """An answer as torch's server sends it."""
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def gloo_dump(
    enqueued: int, *, in_flight: bool, completed: int | None = None, **more: object
) -> dict[str, Any]:
    """A recorder of gloo's as torch 2.13 writes it, with `enqueued` collectives."""
    entries = [
        {
            "collective_seq_id": seq, "input_dtypes": ["Float"], "input_sizes": [[4]],
            "is_p2p": False, "op_id": seq, "output_dtypes": ["Float"], "output_sizes": [[4]],
            "p2p_seq_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce", "record_id": seq - 1,
            "retired": not (in_flight and seq == enqueued), "state": "scheduled",
            "time_created_ns": seq * 10**9, "time_discovered_completed_ns": 0,
            "time_discovered_started_ns": 0, "timeout_ms": 1_800_000,
        }
        for seq in range(1, enqueued + 1)
    ]  # fmt: skip
    done = enqueued - in_flight if completed is None else completed
    status = {
        "last_completed_collective": str(done or -1),
        "last_enqueued_collective": str(enqueued or -1),
        "last_started_collective": "-1",
    }
    return {
        "comm_lib_version": "",
        "entries": entries,
        "nccl_comm_state": {},
        "pg_config": {"": {"desc": "", "name": "", "ranks": "[]"}},
        "pg_status": {"0": status},
        "version": "2.10",
        **more,
    }


def compact(plain: Mapping[str, Any]) -> bytes:
    """JSON without blanks, as torch writes it."""
    return json.dumps(plain, separators=(",", ":")).encode()


@contextmanager
def serving(path: Path, answer: Answer) -> Iterator[list[str]]:
    """A server; yields the requests that came.

    Args:
        answer: called with the first line of each request; None to say nothing.
    """
    requests: list[str] = []
    held: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(8)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                line = connection.recv(4096).decode().partition(" HTTP")[0]
                requests.append(line)
                said = answer(line)
                if said is None:
                    held.append(connection)
                    continue
                with connection:
                    try:
                        connection.sendall(said)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield requests
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()
