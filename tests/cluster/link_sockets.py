"""Whether launchers have joined each other, as the kernel shows it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.conftest import Started, until

_ESTABLISHED, _LISTENING = "01", "0A"


@dataclass(frozen=True, slots=True)
class _Socket:
    """One of a process, with its ends as the kernel writes them (`0100007F:7361`)."""

    local: str
    remote: str
    state: str


def _sockets(pid: int) -> list[_Socket]:
    inodes = set()
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(path).partition("[")[2].rstrip("]"))  # noqa: PTH115
    found = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in inodes:
                    found.append(_Socket(words[1], words[2], words[3]))
    return found


def _port(end: str) -> int:
    return int(end.rpartition(":")[2], 16)


def wait_for_links(jobs: Iterable[Started], rendezvous_port: int) -> None:
    """Until each launcher has a connection with another one, beside the rendezvous store's.

    Args:
        jobs: the launchers, each in a network namespace of its own.
        rendezvous_port: of the store.
    """
    launchers = list(jobs)

    def are_linked() -> bool:
        own = [_sockets(job.process.pid) for job in launchers]
        listening = {
            _port(each.local) for sockets in own for each in sockets if each.state == _LISTENING
        } - {rendezvous_port}
        return all(
            any(
                each.state == _ESTABLISHED and {_port(each.local), _port(each.remote)} & listening
                for each in sockets
            )
            for sockets in own
        )

    until(are_linked, *launchers)
