"""Aborts communicators of accelerators, so that collectives on them return with an error.

For NCCL, HCCL and MCCL. gloo's abort returns at once and ends nothing (collective_aborter.py does).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

ABORTABLE = ("nccl", "hccl", "mccl")


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
