"""Makes this process's blocked collectives return with an error, so that it can save.

With the hook in the process its own list of gloo's sockets is used. Without it every connected TCP
socket is shut that is not excepted: gloo offers no abort (its process group's abort returns at once
and frees nobody), and a shut socket is the one thing that reaches a thread in a collective or in a
blocked receive, in 20 to 30 ms, even while the peer is only stopped.

Listening sockets are never touched: gloo's accept would fail with an exception that nobody
catches, and that ends the process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError
from relkit.hook.owner import recorder_of_self
from relkit.hook.reader import read_state
from relkit.hook.release import release

_HOOK_S = 0.5
ABORTABLE = ("nccl", "hccl", "mccl")


class CollectiveAborter:
    """Ends this process's collectives with an error, again and again if need be.

    Args:
        store_ports: ports of rendezvous stores, whose connections stay.
        recorder: this process's file of the hook; None without the hook.
        kept: what `open_sockets` said before process groups were made: those are the user's own
            (a tracker of experiments, a data base); without it, what was open when this module was
            imported. Only looked at without the hook.
    """

    def __init__(
        self,
        store_ports: Sequence[int],
        recorder: Path | None = None,
        kept: Sequence[str] = (),
    ) -> None:
        self._store_ports = frozenset(store_ports)
        self._recorder = recorder
        self._kept = frozenset(kept or _AT_IMPORT)
        self._aborted = False

    def abort(self, keep: Sequence[int]) -> int:
        """Shut the connections of process groups.

        Args:
            keep: descriptors that stay, the control link's among them.

        Returns:
            how many were shut.
        """
        if not self._aborted:
            self._aborted = True
            abort_communicators()
        if self._recorder is not None:
            try:
                return release(self._recorder, read_state(self._recorder), _HOOK_S)
            except (RelkitError, OSError):
                # A hook that cannot answer must not keep a survivor from saving.
                self._recorder = None
        return shut_connections(keep, self._store_ports, self._kept)


def open_sockets() -> tuple[str, ...]:
    """The sockets of this process, by inode; to be called before process groups are made."""
    return tuple(_sockets().values())


def _before_groups() -> tuple[str, ...]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        return ()
    return open_sockets()


def own_recorder() -> Path | None:
    """The hook's file of this process, None without the hook."""
    folder = os.environ.get("RELKIT_HOOK_DIR")
    if not folder or os.environ.get("RELKIT_HOOK_DISABLE") == "1":
        return None
    return recorder_of_self(Path(folder))


def shut_connections(
    keep: Sequence[int], store_ports: frozenset[int], kept_inodes: Collection[str]
) -> int:
    """Shut every connected TCP socket of this process that is not excepted.

    Args:
        keep: descriptors; store_ports: of the peer; kept_inodes: as /proc/self/fd names sockets.

    Returns:
        how many were shut.
    """
    shut = 0
    for descriptor, name in _sockets().items():
        if descriptor not in keep and name not in kept_inodes:
            shut += _shut(descriptor, name, store_ports)
    return shut


def _sockets() -> dict[int, str]:
    sockets = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            name = str(entry.readlink())
            if name.startswith("socket:"):
                sockets[int(entry.name)] = name
    return sockets


def _shut(descriptor: int, name: str, store_ports: frozenset[int]) -> bool:
    try:
        copy = os.dup(descriptor)
    except OSError:
        return False
    try:
        # The number may have been closed and used again since it was listed.
        if str(Path(f"/proc/self/fd/{copy}").readlink()) != name:
            return False
        with socket.socket(fileno=os.dup(copy)) as sock:
            if sock.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return False
            if sock.getpeername()[1] in store_ports:
                return False
            sock.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        # Not connected (any more).
        return False
    finally:
        os.close(copy)


_AT_IMPORT = _before_groups()


def abort_communicators() -> tuple[str, ...]:
    """Begin to abort every process group with such a backend, each in a thread of its own.

    An abort may itself wait for a device; neither the caller nor another group waits for it.

    Returns:
        the backends' names, one for each group.
    """
    begun = []
    for name, backend in _backends():
        threading.Thread(target=_abort, args=(backend,), name="relkit-abort", daemon=True).start()
        begun.append(name)
    return tuple(begun)


def _abort(backend: Any) -> None:  # noqa: ANN401 (torch's own type is private)
    try:
        backend.abort()
    except RuntimeError as error:
        # Aborted already, or by torch's own watchdog: what was asked for is so.
        print(f"relkit: a communicator could not be aborted: {error}", file=sys.stderr)


def _backends() -> Iterator[tuple[str, Any]]:
    """Each backend that can be aborted, once; none where torch keeps its groups elsewhere."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    groups = getattr(getattr(distributed, "_world", None), "pg_map", {})
    seen: set[int] = set()
    for group in list(groups):
        for device in getattr(group, "_device_types", ()):
            backend = group._get_backend(device)
            name = backend.name().lower()
            if name in ABORTABLE and id(backend) not in seen:
                seen.add(id(backend))
                yield name, backend
