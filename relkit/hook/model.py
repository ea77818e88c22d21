"""What the recorder of one process says: operations finished, in flight, and on which group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any


class OpKind(IntEnum):
    """What sort of operation a hooked symbol is (same numbers as in native/)."""

    COLLECTIVE = 1
    P2P = 2
    GEMM = 3
    KERNEL = 4
    MEMORY = 5
    MARK = 6
    WAIT = 7


@dataclass(frozen=True, slots=True)
class Communicator:
    """One process group as this rank sees it.

    Args:
        index: number of this communicator in this process, in order of creation.
        rank: this process's rank in the group; size: ranks in the group.
        name: the group's job-wide name ("0" is torch's default group), "" where not known.
        seq: sequence number of the newest collective started on it (-1 for none).
        done: all collectives up to this number have ended, where a recorder counts that; else 0.
    """

    index: int
    rank: int
    size: int
    name: str = ""
    seq: int = -1
    done: int = 0


@dataclass(frozen=True, slots=True)
class TransferCount:
    """The sends to one peer, or the receives from one, in one group and with one tag.

    Both ends count alike: the n-th send of one is the n-th receive of the other.

    Args:
        communicator: Communicator.index.
        receives: the direction.
        peer: rank in the group.
        tag: 0 also where the library has none.
        posted: how many the program has called, waited for or not.
        done: how many of those have ended; where the host waits for them, been waited for.
        sizes: of the newest ones called, bytes, oldest first, at most four.
    """

    communicator: int
    receives: bool
    peer: int
    tag: int
    posted: int
    done: int
    sizes: tuple[int, ...] = ()

    def size_bytes(self, number: int) -> int | None:
        """Of the call with this number, counted from 0; None where it is not kept."""
        place = number - (self.posted - len(self.sizes))
        return self.sizes[place] if 0 <= place < len(self.sizes) else None


@dataclass(frozen=True, slots=True)
class Op:
    """One hooked call, finished or in flight; the outermost where hooked calls nest.

    Args:
        name: short name, e.g. "allreduce", "barrier", "recv", "sgemm".
        kind: what sort it is.
        seq: for a collective its sequence number on the communicator, the same on every rank
            of a correct program; for a send or receive its number in its TransferCount; else -1.
        communicator: Communicator.index, -1 where there is none.
        size_bytes: payload in bytes; 0 where the call does not say.
        os_thread_id: the thread that made the call.
        start_ns: CLOCK_MONOTONIC, ns.
        end_ns: CLOCK_MONOTONIC, ns; 0 while in flight.
        failed: it ended by a C++ exception instead of returning.
        peer: rank in the group: the other end of a send or recv, the root of a rooted
            collective; -1 where there is none or it is not known.
        flops: of a matrix product, multiply and add counted as two; 0 where not known.
        enqueue_ns: of a device operation, when the host enqueued it; 0 = it ran on the host.
        post: of a gloo transfer, which starts when it is waited for: its number among all that
            the process has posted, modulo 2^24; else 0.
        queued: the device has not begun it, and start_ns is enqueue_ns.
        tag: of a send or receive; 0 also where the library has none.
    """

    name: str
    kind: OpKind
    seq: int
    communicator: int
    size_bytes: int
    os_thread_id: int
    start_ns: int
    end_ns: int = 0
    failed: bool = False
    peer: int = -1
    flops: int = 0
    enqueue_ns: int = 0
    queued: bool = False
    tag: int = 0
    post: int = 0

    @property
    def communicates(self) -> bool:
        """It is a collective, a send or a receive."""
        return self.kind in (OpKind.COLLECTIVE, OpKind.P2P)


@dataclass(frozen=True, slots=True)
class HookState:
    """A consistent copy of one process's recorder.

    Args:
        pid: process; start_ticks: its start time (/proc/PID/stat field 22), so that a reused
            pid is not taken for it; pid_namespace: inode of the PID namespace that the number is
            of, 0 where that is not known.
        rank, local_rank, world_size: from RANK, LOCAL_RANK, WORLD_SIZE at its first hooked call
            (-1 where unset).
        now_ns: CLOCK_MONOTONIC when it was read, on the same host.
        boot_to_unix_ns: add to a CLOCK_MONOTONIC time to get Unix time, ns.
        started, finished: hooked operations since the start, outermost only.
        last_finish_ns: CLOCK_MONOTONIC of the newest finished operation, 0 for none.
        in_flight: operations that have not returned, oldest first.
        recent: the newest finished operations of all threads, oldest first.
        transfers: how many sends and receives there were with each peer; not in brief looks.
        communicators: all groups, by index.
        missing: hooked symbols whose original could not be found.
        dropped: operations not recorded because a fixed budget was used up; uncounted: sends
            and receives that are in no TransferCount for the same reason.
        counted: how many of the finished ones were too small to be timed: they are in neither
            in_flight nor recent, and do not move last_finish_ns.
        platforms: those of which a library was seen in the process; notes: what the hook could
            not see or do there.
        capture_signal: the real-time signal that asks for native stacks; 0 = cannot capture.
    """

    pid: int
    start_ticks: int
    rank: int
    local_rank: int
    world_size: int
    now_ns: int
    boot_to_unix_ns: int
    started: int
    finished: int
    last_finish_ns: int
    in_flight: tuple[Op, ...] = ()
    recent: tuple[Op, ...] = ()
    communicators: tuple[Communicator, ...] = ()
    missing: tuple[str, ...] = ()
    dropped: int = 0
    capture_signal: int = 0
    counted: int = 0
    platforms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    transfers: tuple[TransferCount, ...] = ()
    uncounted: int = 0
    pid_namespace: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, for the store between nodes and for the dump file."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> HookState:
        """The inverse of to_json.

        Raises:
            ValueError, TypeError, KeyError: the document is not one of ours.
        """
        fields = dict(plain)
        for name in ("in_flight", "recent"):
            fields[name] = tuple(Op(**{**op, "kind": OpKind(op["kind"])}) for op in fields[name])
        fields["communicators"] = tuple(Communicator(**c) for c in fields["communicators"])
        fields["transfers"] = tuple(
            TransferCount(**{**count, "sizes": tuple(count["sizes"])})
            for count in fields.get("transfers", ())
        )
        for name in ("missing", "platforms", "notes"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)
